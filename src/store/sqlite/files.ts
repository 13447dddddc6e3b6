// The names of the store's files in a state directory.
export const databaseName = 'interlane.db';
