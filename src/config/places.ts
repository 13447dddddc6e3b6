// Where each setting is written, and a finding as one line: file, line and column, the setting, its value as written, what to do.
import type { Finding } from '../finding.ts';
import { placeOf } from './reference.ts';
import type { Config } from './schema.ts';
import type { Place, Source } from './source.ts';

export interface Places extends Pick<Source, 'value' | 'valueAt' | 'nameAt' | 'written'> {
  file: string;
}

/** In the order of the file. */
export function tellFindings(findings: readonly Finding[], config: Config, places: Places | undefined): string[] {
  const placed = findings.map((finding) => ({ finding, at: places && placeFor(finding, places) }));
  return placed.toSorted((a, b) => byPlace(a.at, b.at)).map(({ finding, at }) => lineOf(finding, config, places, at));
}

export const byPlace = (a: Place | undefined, b: Place | undefined) => (a && b ? a.line - b.line || a.column - b.column : 0);

function lineOf(finding: Finding, config: Config, places: Places | undefined, at: Place | undefined): string {
  const { path, says, meant, inName } = finding;
  const value = inName ? undefined : shownValue(path, config, places);
  const what = [pathText(path), value, says].filter((part) => part !== undefined).join(' ');
  const hint = meant === undefined || mayRepeat(path, places) ? '' : `; did you mean "${meant}"?`;
  return `${at ? `${places!.file}:${at.line}:${at.column}  ` : ''}${what}${hint}`;
}

/** A suggestion could repeat what a `${NAME}` in the file is replaced with. */
const mayRepeat = (path: PropertyKey[], places: Places | undefined) =>
  places !== undefined && [path, ['agents', 'list']].some((one) => places.written(one)?.includes('${'));

const placeFor = ({ path, inName }: Finding, places: Places) => (inName ? places.nameAt(path) : places.valueAt(path));

/** As it is written in the file, so that no value from the environment appears. */
function shownValue(path: PropertyKey[], config: Config, places: Places | undefined): string | undefined {
  const value = path.reduce<unknown>((inside, step) => (inside as Record<PropertyKey, unknown> | undefined)?.[step], config);
  if (typeof value === 'object' || value === undefined || placeOf(path)?.secret !== false) return undefined;
  return shorten(places?.written(path) ?? JSON.stringify(value));
}

export function pathText(path: PropertyKey[]): string {
  let text = '';
  for (const step of path) {
    if (typeof step === 'number') text += `[${step}]`;
    else if (/^[\w$-]+$/.test(String(step))) text += `${text ? '.' : ''}${String(step)}`;
    else text += `[${JSON.stringify(String(step).slice(0, 60))}]`;
  }
  return text || 'the config';
}

export function shorten(text: string): string {
  const line = text.replace(/\s+/g, ' ');
  return line.length > 80 ? `${line.slice(0, 77)}…` : line;
}
