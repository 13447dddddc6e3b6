// The dialect: our SQL → PostgreSQL's. Two rules, and everything else must be spelled so that both databases take it.

/** Quoted text, quoted names and comments: nothing inside them is ours to read. */
const quoted = /('(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|\/\*[\s\S]*?\*\/)/;

/** Numbers the parameters and drops the names of indexes. A parameter that is numbered already stays, and PostgreSQL refuses it. */
export function toPostgres(sql: string): string {
  let parameters = 0;
  return outsideQuotes(sql, (text) => text.replaceAll(/\s+INDEXED BY \w+/g, '').replaceAll(/\?(?!\d)/g, () => `$${++parameters}`));
}

/** Bare names with capitals. PostgreSQL takes them and returns the column in lower case, so the field would be missing without an error. */
export function foldedNames(sql: string): string[] {
  const names: string[] = [];
  outsideQuotes(sql, (text) => {
    names.push(...(text.match(/\b\w*(?:[a-z]\w*[A-Z]|[A-Z]\w*[a-z])\w*\b/g) ?? []));
    return text;
  });
  return names;
}

function outsideQuotes(sql: string, change: (text: string) => string): string {
  return sql
    .split(quoted)
    .map((part, index) => (index % 2 === 0 ? change(part) : part))
    .join('');
}
