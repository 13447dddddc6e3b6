// Config file → validated config and warnings, or one error with the place of each problem and its fix.
import { readFileSync, statSync } from 'node:fs';
import type { z } from 'zod';
import { nearest } from '../nearest.ts';
import { InterlaneError, reasonOf } from '../errors.ts';
import { agentId, platformId } from '../protocol/ids.ts';
import type { HookName } from '../protocol/labels.ts';
import { listSettings, placeOf } from './reference.ts';
import { Config } from './schema.ts';
import { readSource, SourceError, type Place, type Source } from './source.ts';

export interface LoadedConfig {
  config: Config;
  /** Settings that work, but perhaps not as intended. */
  warnings: string[];
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
  if (problems.length > 0 || !checked.success) {
    const more = problems.length > mostProblems ? `\n\n… and ${problems.length - mostProblems} more` : '';
    const count = problems.length === 1 ? 'a problem' : `${problems.length} problems`;
    throw new InterlaneError(
      'CONFIG_INVALID',
      `config has ${count}; nothing was started\n\n${problems.slice(0, mostProblems).join('\n\n')}${more}`,
    );
  }
  return { config: checked.data, warnings: [...notYetWarnings(source, file), ...likelyMistakes(checked.data, source)] };
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
      'FILE_UNREADABLE',
      missing
        ? `config file ${file} does not exist; check the path given by --config or INTERLANE_CONFIG`
        : `config file ${file} cannot be read: ${reasonOf(thrown)}`,
    );
  }
}

function parseSource(text: string, file: string, env: Record<string, string | undefined>): Source {
  try {
    return readSource(text.replace(/^\uFEFF/, ''), env);
  } catch (thrown) {
    if (!(thrown instanceof SourceError)) throw thrown;
    const advice = text.trim() === '' ? '\n  an empty config is written {}' : '';
    throw new InterlaneError(
      'CONFIG_INVALID',
      `config has a problem; nothing was started\n\n${problem(file, thrown.at, `the file ${thrown.message}`)}${advice}`,
    );
  }
}

function problem(file: string, at: Place, headline: string, details: string[] = []): string {
  return [`${file}:${at.line}:${at.column}  ${headline}`, ...details.map((detail) => `  ${detail}`)].join('\n');
}

function describeIssue(issue: z.core.$ZodIssue, source: Source, file: string): string[] {
  if (issue.code === 'unrecognized_keys') return issue.keys.map((name) => unknownSetting(name, issue.path, source, file));
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

function unknownSetting(name: string, parent: PropertyKey[], source: Source, file: string): string {
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

function notYetWarnings(source: Source, file: string): string[] {
  const warnings: string[] = [];
  const visit = (value: unknown, path: PropertyKey[]) => {
    if (path.length > 0 && placeOf(path)?.notYet) {
      warnings.push(`${pathText(path)} (${file}:${source.nameAt(path).line}) has no effect yet in this version`);
    } else if (Array.isArray(value)) {
      value.forEach((item, index) => visit(item, [...path, index]));
    } else if (typeof value === 'object' && value !== null) {
      for (const [name, item] of Object.entries(value)) visit(item, [...path, name]);
    }
  };
  visit(source.value, []);
  return warnings;
}

/** Quotes values as they are written in the file, so that no value from the environment appears. */
function likelyMistakes(config: Config, source: Source): string[] {
  const warnings: string[] = [];
  const { list } = config.agents;
  const ids = new Set(list.map((entry) => agentId(entry.id)));
  list.forEach((entry, index) => {
    const id = agentId(entry.id);
    const path = ['agents', 'list', index, 'id'];
    const written = source.written(path) ?? '';
    if (id !== entry.id)
      warnings.push(
        `${pathText(path)} ${written} is used as ${written.includes('${') ? 'an id of a-z, 0-9, "_" and "-" only' : `"${id}"`}`,
      );
    warnings.push(...unknownAgents(ids, entry.subagents.allowAgents, ['agents', 'list', index, 'subagents', 'allowAgents'], source));
  });
  warnings.push(
    ...unknownAgents(ids, config.agents.defaults.subagents.allowAgents, ['agents', 'defaults', 'subagents', 'allowAgents'], source),
  );
  const defaults = list.flatMap((entry, index) => (entry.default ? [index] : []));
  if (defaults.length > 1)
    warnings.push(`agents.list has ${defaults.length} entries with default: true; agents.list[${defaults[0]!}] is used`);
  const linked = new Map<string, string>();
  for (const [person, entries] of Object.entries(config.session.identityLinks)) {
    for (const entry of entries) {
      const colon = entry.indexOf(':');
      const key = JSON.stringify([platformId(entry.slice(0, colon)), platformId(entry.slice(colon + 1))]);
      const earlier = linked.get(key);
      if (earlier !== undefined && earlier !== person)
        warnings.push(`session.identityLinks lists one id for both "${earlier}" and "${person}"; "${earlier}" is used`);
      else linked.set(key, person);
    }
  }
  config.policy.rules.forEach((rule, index) => {
    if (!askedHooks.has(rule.hook))
      warnings.push(`policy.rules[${index}].hook ${rule.hook} is not evaluated yet in this version, so the rule has no effect`);
    else if (rule.match.tool !== undefined && !/TOOL/.test(rule.hook))
      warnings.push(
        `policy.rules[${index}].match.tool never matches at ${rule.hook}; tools are known at PRE_TOOL_CALL and POST_TOOL_RESPONSE`,
      );
  });
  return warnings;
}

/** The hooks that this version evaluates. */
const askedHooks = new Set<HookName>([
  'PRE_CONTEXT_INJECTION',
  'PRE_TOOL_CALL',
  'POST_TOOL_RESPONSE',
  'PRE_OUTPUT',
  'AGENT_INVOCATION',
  'MCP_TOOL_CALL',
]);

function unknownAgents(known: Set<string>, allowed: string[] | undefined, path: PropertyKey[], source: Source): string[] {
  if (known.size === 0) return [];
  return (allowed ?? []).flatMap((id, index) =>
    id.trim() === '*' || known.has(agentId(id))
      ? []
      : [`${pathText([...path, index])} ${source.written([...path, index]) ?? ''} is not in agents.list`],
  );
}

function pathText(path: PropertyKey[]): string {
  let text = '';
  for (const step of path) {
    if (typeof step === 'number') text += `[${step}]`;
    else if (/^[\w$-]+$/.test(String(step))) text += `${text ? '.' : ''}${String(step)}`;
    else text += `[${JSON.stringify(String(step).slice(0, 60))}]`;
  }
  return text || 'the config';
}

function shorten(text: string): string {
  const line = text.replace(/\s+/g, ' ');
  return line.length > 80 ? `${line.slice(0, 77)}…` : line;
}
