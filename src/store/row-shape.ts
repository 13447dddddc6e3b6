// Rows as objects that the engine of JavaScript keeps flat: all copies of one blank share its layout, however many columns it has.

export type FillRow = (values: ArrayLike<unknown>) => Record<string, unknown>;

/** Makes objects with these columns from values in the same order. */
export function rowShape(columns: readonly string[]): FillRow {
  // Parsed, since an object that is built up column by column turns into a hash table after a dozen.
  const blank = JSON.parse(JSON.stringify(Object.fromEntries(columns.map((name) => [name, null])))) as Record<string, unknown>;
  return (values) => {
    const row = { ...blank };
    for (let index = 0; index < columns.length; index++) row[columns[index]!] = values[index];
    return row;
  };
}
