// Config file → config that fits the schema and the places of its settings, or one error with each problem and its fix.
import { readFileSync, statSync } from 'node:fs';
import type { z } from 'zod';
import { nearest } from '../nearest.ts';
import { InterlaneError, isDenied, systemReason } from '../errors.ts';
import { byPlace, pathText, shorten, type Places } from './places.ts';
import { listSettings, placeOf } from './reference.ts';
import { Config } from './schema.ts';
import { readSource, SourceError, type Place, type Source } from './source.ts';

export interface LoadedConfig {
  config: Config;
  /** Where each setting is written, for messages. The built-in defaults have none. */
  places?: Places | undefined;
}

const largestFile = 16 * 1024 * 1024;
const mostProblems = 20;

export function loadConfig(file: string, env: Record<string, string | undefined>): LoadedConfig {
  return readConfig(readText(file), file, env);
}

/** The config without any config file. */
export function defaultConfig(): Config {
  return Config.parse({});
}

export function readConfig(text: string, file: string, env: Record<string, string | undefined>): LoadedConfig {
  const source = parseSource(text, file, env);
  const problems = source.problems.map(({ path, at, message }) => problem(file, at, `${pathText(path)} ${message}`));
  const checked = Config.safeParse(source.value, { reportInput: true });
  if (!checked.success) problems.push(...checked.error.issues.flatMap((issue) => describeIssue(issue, source, file)));
  if (problems.length > 0 || !checked.success)
    throw invalidConfig(problems.toSorted((a, b) => byPlace(a.at, b.at)).map(({ text }) => text));
  return { config: checked.data, places: { ...source, file } };
}

/** The one error about a config: the problems, in the order of the file. */
export function invalidConfig(problems: string[]): InterlaneError {
  const more = problems.length > mostProblems ? `\n\n… and ${problems.length - mostProblems} more` : '';
  const count = problems.length === 1 ? 'a problem' : `${problems.length} problems`;
  return new InterlaneError('CONFIG_INVALID', `config has ${count}\n\n${problems.slice(0, mostProblems).join('\n\n')}${more}`);
}

function readText(file: string): string {
  try {
    const stat = statSync(file);
    if (!stat.isFile()) throw new Error('it is not a file');
    const { size } = stat;
    if (size > largestFile) throw new Error(`it is ${size} bytes, and at most ${largestFile} are read`);
    return readFileSync(file, 'utf8');
  } catch (thrown) {
    const missing = (thrown as NodeJS.ErrnoException).code === 'ENOENT';
    throw new InterlaneError(
      isDenied(thrown) ? 'FILE_DENIED' : 'FILE_UNREADABLE',
      missing
        ? `config file ${file} does not exist; check the path given by --config or INTERLANE_CONFIG`
        : `config file ${file} cannot be read: ${systemReason(thrown)}`,
    );
  }
}

function parseSource(text: string, file: string, env: Record<string, string | undefined>): Source {
  try {
    return readSource(text.replace(/^\uFEFF/, ''), env);
  } catch (thrown) {
    if (!(thrown instanceof SourceError)) throw thrown;
    const advice = text.trim() === '' ? '\n  an empty config is written {}' : '';
    throw invalidConfig([`${problem(file, thrown.at, `the file ${thrown.message}`).text}${advice}`]);
  }
}

interface Problem {
  at: Place;
  text: string;
}

function problem(file: string, at: Place, headline: string, details: string[] = []): Problem {
  return { at, text: [`${file}:${at.line}:${at.column}  ${headline}`, ...details.map((detail) => `  ${detail}`)].join('\n') };
}

function describeIssue(issue: z.core.$ZodIssue, source: Source, file: string): Problem[] {
  if (issue.code === 'unrecognized_keys') return issue.keys.map((name) => unknownSetting(name, issue.path, source, file));
  if (issue.code === 'invalid_key') {
    const why = issue.issues.map(({ message }) => message).join(', and ');
    return [problem(file, source.nameAt(issue.path), `${pathText(issue.path)} is a name that cannot be used: it ${why}`)];
  }
  const place = placeOf(issue.path);
  const written = source.written(issue.path);
  const at = source.valueAt(issue.path);
  const path = pathText(issue.path);
  const allowed = place ? `allowed: ${place.allowed}` : undefined;
  if (written === undefined)
    return [
      problem(
        file,
        at,
        `${path} is missing`,
        [allowed].filter((line) => line !== undefined),
      ),
    ];
  const details = [`found:   ${place?.secret === false ? shorten(written) : '(not shown)'}`];
  // Our own messages say what is required; for other issues the schema lists the allowed values.
  if (/^(must|needs) /.test(issue.message)) return [problem(file, at, `${path} ${issue.message}`, details)];
  if (allowed) details.push(allowed);
  if (issue.code === 'invalid_value' && place?.secret === false) {
    // The suggestion comes from the schema, so it repeats no value from the environment.
    const [near] = nearest(String(issue.input), issue.values.map(String));
    if (near !== undefined) details.push(`did you mean "${near}"?`);
  }
  return [problem(file, at, `${path} is not valid`, details)];
}

function unknownSetting(name: string, parent: PropertyKey[], source: Source, file: string): Problem {
  const names = placeOf(parent)?.names ?? [];
  const [near] = nearest(name, names);
  // The same name at other places in the config, the nearest first.
  const here = pathText(parent).replace(/\[\d+\]/g, '[]');
  const [elsewhere] = listSettings()
    .filter((setting) => setting.path.split('.').at(-1)?.replace('[]', '') === name)
    .toSorted((a, b) => Number(b.path.startsWith(here)) - Number(a.path.startsWith(here)));
  const details = [`allowed: ${names.join(', ')}`];
  if (near) details.push(`did you mean "${near}"?`);
  else if (elsewhere) details.push(`did you mean ${elsewhere.path}?`);
  return problem(file, source.nameAt([...parent, name]), `${pathText([...parent, name])} is not a setting`, details);
}
