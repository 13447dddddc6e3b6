// The walks of docs/design.md: the code that a message passes, and how many lines of it a stranger reads. Run by `npm run hops`.
import { existsSync, readFileSync } from 'node:fs';

export interface Hop {
  file: string;
  /** Declarations on the way; all of the file without any. */
  names: string[];
}

/** The walks by their headings. A hop is a list item that begins with a path in backquotes. */
export function walksOf(page: string): Map<string, Hop[]> {
  const walks = new Map<string, Hop[]>();
  let hops: Hop[] | undefined;
  for (const line of page.split('\n')) {
    const heading = /^#{2,3} (.*)$/.exec(line)?.[1];
    if (heading !== undefined) hops = undefined;
    if (heading !== undefined && line.startsWith('### ')) walks.set(heading, (hops = []));
    const [, file, rest] = /^- `(src\/[\w./-]+\.ts)`:(.*)$/.exec(line) ?? [];
    if (file === undefined || !hops) continue;
    const listed = /^((?: `\w+`,?)+):/.exec(rest!)?.[1] ?? '';
    hops.push({ file, names: [...listed.matchAll(/`(\w+)`/g)].map((found) => found[1]!) });
  }
  return new Map([...walks].filter(([, found]) => found.length > 0));
}

/** First and last line of each declaration at the top of a file, by its name. */
function declarations(text: string): Map<string, { lines: number }> {
  const found = new Map<string, { lines: number }>();
  const lines = text.split('\n');
  for (const [at, line] of lines.entries()) {
    const name = /^(?:export )?(?:async )?(?:function\*?|class|const|interface|type) (\w+)/.exec(line)?.[1];
    if (name === undefined) continue;
    const oneLine = /[;}]$/.test(line) && !line.endsWith('{}');
    const end = oneLine ? at : lines.findIndex((later, index) => index > at && /^[}\])]/.test(later) && !/^\)[:,]? .*\{$/.test(later));
    found.set(name, { lines: (end < 0 ? lines.length - 1 : end) - at + 1 });
  }
  return found;
}

/** Lines of one hop, or what is wrong with it. */
export function linesOf({ file, names }: Hop): number | string {
  if (!existsSync(file)) return `${file} does not exist`;
  const text = readFileSync(file, 'utf8');
  if (names.length === 0) return text.split('\n').length - 1;
  const known = declarations(text);
  let sum = 0;
  for (const name of names) {
    const declared = known.get(name);
    if (!declared) return `${file} has no ${name}`;
    sum += declared.lines;
  }
  return sum;
}

if (import.meta.main) {
  for (const [walk, hops] of walksOf(readFileSync('docs/design.md', 'utf8'))) {
    process.stdout.write(`${walk}\n`);
    let sum = 0;
    for (const hop of hops) {
      const lines = linesOf(hop);
      if (typeof lines === 'string') throw new Error(lines);
      sum += lines;
      process.stdout.write(`${String(lines).padStart(6)}  ${hop.file} ${hop.names.join(', ')}\n`);
    }
    const files = [...new Set(hops.map(({ file }) => file))];
    const whole = files.reduce((total, file) => total + Number(linesOf({ file, names: [] })), 0);
    process.stdout.write(`${String(sum).padStart(6)}  in ${files.length} files, which have ${whole} lines in all\n\n`);
  }
}
