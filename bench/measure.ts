// What every benchmark uses: medians, rates, progress on stderr, a table on stdout, and a directory that goes away.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';

export const sampleMs = 200;
export const samples = 7;

export function median(numbers: number[]): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** Median nanoseconds per call over several samples. */
export function nanoseconds(call: (turn: number) => unknown): number {
  let sink: unknown;
  const measure = (ms: number) => {
    const end = performance.now() + ms;
    const start = performance.now();
    let turns = 0;
    while (performance.now() < end) for (let n = 0; n < 50; n++) sink = call(turns++);
    return ((performance.now() - start) * 1e6) / turns;
  };
  measure(sampleMs);
  const taken = Array.from({ length: samples }, () => measure(sampleMs));
  if (sink === nanoseconds) throw new Error('unreachable: keeps the calls from being optimised away');
  return median(taken);
}

/** How many per second when so many are always under way, each starting when one before it is done. */
export async function rate(count: number, inFlight: number, work: (n: number) => Promise<unknown>): Promise<number> {
  let next = 0;
  const worker = async () => {
    while (next < count) await work(next++);
  };
  const started = performance.now();
  await Promise.all(Array.from({ length: Math.min(inFlight, count) }, worker));
  return (count * 1_000) / (performance.now() - started);
}

/** Median milliseconds of one call; fewer calls when they are slow. */
export async function pageMs(count: number, work: (n: number) => Promise<unknown>): Promise<number> {
  // Warm for a tenth of a second, so that what was not compiled yet is not counted to the first of them.
  const warm = performance.now() + 100;
  for (let n = 0; n < 20 || performance.now() < warm; n++) {
    await work(n);
    if (performance.now() > warm + 100) break;
  }
  const taken: number[] = [];
  const end = performance.now() + 4_000;
  for (let n = 0; n < count && (n < 3 || performance.now() < end); n++) {
    const started = performance.now();
    await work(n);
    taken.push(performance.now() - started);
  }
  return median(taken);
}

export function progress(text: string): void {
  process.stderr.write(`${text}\n`);
}

export const whole = (value: number) => Math.round(value).toLocaleString('en');
export const percent = (part: number) => `${(part * 100).toFixed(part < 0.3 ? 1 : 0)} %`;

/** The first column to the left, the others to the right. */
export function table(head: string[], rows: string[][]): string {
  const lines = [head, ...rows];
  const widths = head.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  const drawn = lines.map((line) =>
    widths
      .map((width, column) => (column === 0 ? (line[column] ?? '').padEnd(width) : (line[column] ?? '').padStart(width)))
      .join('  ')
      .trimEnd(),
  );
  drawn.splice(1, 0, widths.map((width) => '-'.repeat(width)).join('  '));
  return `${drawn.join('\n')}\n`;
}

export interface Line {
  name: string;
  measured: string;
  beside: string;
  target?: string;
  reached?: boolean;
}

export function drawLines(lines: Line[]): string {
  const rows = lines.map(({ name, measured, beside, target = '', reached }) => [
    name,
    measured,
    beside,
    target,
    reached === undefined ? '' : reached ? 'reached' : 'NOT REACHED',
  ]);
  return table(['', 'measured', 'beside', 'target', ''], rows);
}

/** Everything in it is gone afterwards, also when it is stopped halfway. */
export async function inTemporary(work: (directory: string) => Promise<void>): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'interlane-bench-'));
  const clean = () => rmSync(directory, { recursive: true, force: true });
  const stop = () => process.exit(130);
  process.once('exit', clean);
  process.once('SIGINT', stop);
  process.once('SIGTERM', stop);
  try {
    await work(directory);
  } finally {
    clean();
    process.off('exit', clean);
    process.off('SIGINT', stop);
    process.off('SIGTERM', stop);
  }
}
