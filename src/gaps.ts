// Objects whose absent fields are really absent, for answers that are written as JSON or compared.

/** Leaves out every field that is undefined. */
export function withoutGaps<T extends object>(all: { [K in keyof T]: T[K] | undefined }): T {
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined)) as T;
}
