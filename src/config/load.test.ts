import * as fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { InterlaneError } from '../errors.ts';
import { defaultConfig, loadConfig, readConfig } from './load.ts';

const read = (text: string, env = {}) => readConfig(text, 'c.json5', env);
const failure = (text: string, env = {}): string => {
  try {
    read(text, env);
  } catch (thrown) {
    expect(thrown).toBeInstanceOf(InterlaneError);
    expect((thrown as InterlaneError).code).toBe('CONFIG_INVALID');
    return (thrown as Error).message;
  }
  throw new Error('the config was accepted');
};

const mistakes: [why: string, text: string, says: string[]][] = [
  [
    'a misspelt value',
    `{\n  session: {\n    dmScope: "per-pear",\n  },\n}`,
    ['c.json5:3:14  session.dmScope is not valid', 'found:   "per-pear"', 'allowed: "main", "per-peer"', 'did you mean "per-peer"?'],
  ],
  ['a bracket too early', `{ session: }`, ['c.json5:1:12  the file is not valid JSON5: "}" does not fit here']],
  ['an end too early', `{ session: "x }`, ['the file is not valid JSON5: it ends too early']],
  ['a misspelt name', `{ sesion: {} }`, ['c.json5:1:3  sesion is not a setting', 'allowed: session, agents', 'did you mean "session"?']],
  ['a name in the wrong place', `{ dmScope: "main" }`, ['c.json5:1:3  dmScope is not a setting', 'did you mean session.dmScope?']],
  [
    'a number out of range',
    `{ session: { agentToAgent: { maxPingPongTurns: 6 } } }`,
    ['session.agentToAgent.maxPingPongTurns is not valid', 'found:   6', 'allowed: a whole number from 0 to 5'],
  ],
  ['a fraction', `{ session: { agentToAgent: { maxPingPongTurns: 1.5 } } }`, ['allowed: a whole number from 0 to 5']],
  ['infinity', `{ gateway: { port: Infinity } }`, ['gateway.port is not valid', 'found:   Infinity']],
  ['a wrong type', `{ bindings: {} }`, ['bindings is not valid', 'found:   {}', 'allowed: a list']],
  [
    'something missing',
    `{ bindings: [\n { match: { channel: "irc" } } ] }`,
    ['c.json5:2:2  bindings[0].agentId is missing', 'allowed: text'],
  ],
  ['a blank id', `{ agents: { list: [{ id: " " }] } }`, ['agents.list[0].id must not be blank', 'found:   " "']],
  [
    'the same agent twice',
    `{ agents: { list: [{ id: "a b" }, { id: "A-B" }] } }`,
    ['agents.list[1].id must differ from agents.list[0].id'],
  ],
  ['a taken main key', `{ session: { mainKey: "cron" } }`, ['session.mainKey must not be a word of the session key grammar']],
  [
    'a link without a channel',
    `{ session: { identityLinks: { ana: ["111"] } } }`,
    ['session.identityLinks.ana[0] must be "<channel>:<id>"'],
  ],
  [
    'two names of one field that differ',
    `{ session: { sendPolicy: { rules: [{ match: { channel: "a", surface: "b" }, action: "deny" }] } } }`,
    ['rules[0].match must not give `channel` and its old name `surface` different values'],
  ],
  [
    'a broken pattern',
    `{ policy: { rules: [{ id: "x", hook: "PRE_OUTPUT", match: { text: "(" }, effect: "BLOCK" }] } }`,
    ['policy.rules[0].match.text must be a pattern in RE2 syntax: missing closing )'],
  ],
  [
    'nothing to redact',
    `{ policy: { rules: [{ id: "x", hook: "PRE_OUTPUT", effect: "REDACT" }] } }`,
    ['policy.rules[0] needs `match.text`, the pattern to take out'],
  ],
  [
    'redacting nothing everywhere',
    `{ policy: { rules: [{ id: "x", hook: "PRE_OUTPUT", match: { text: "x*" }, effect: "REDACT" }] } }`,
    ['does not match empty text'],
  ],
  [
    'a rule that would loosen',
    `{ policy: { rules: [{ id: "x", hook: "PRE_OUTPUT", effect: "ALLOW" }] } }`,
    ['allowed: "BLOCK" or "REDACT"'],
  ],
  ['a setting given twice', `{ owners: [],\n  owners: [] }`, ['c.json5:2:3  owners is given twice']],
  [
    'an unset variable',
    `{ hooks: { token: "\${HOOK_TOKEN}" } }`,
    ['hooks.token needs the environment variable HOOK_TOKEN, which is not set'],
  ],
  [
    'a main key that is a word inside keys',
    `{ session: { mainKey: "group" } }`,
    ['session.mainKey must not be a word of the session key grammar'],
  ],
  [
    'two names of one channel',
    `{ classification: { channels: { slack: "PUBLIC", " Slack": "RESTRICTED" } } }`,
    ['must differ from "slack" in more than case and outer space'],
  ],
  ['a blank name', `{ session: { identityLinks: { " ": ["a:b"] } } }`, ['must not have a blank name']],
  ['a variable that is not one', `{ hooks: { token: "\${MY-KEY}" } }`, ['has a "${" without a variable name']],
  ['a variable named like a method', `{ hooks: { token: "\${constructor}" } }`, ['constructor, which is not set']],
  ['empty text', `{ agents: { defaults: { model: "" } } }`, ['agents.defaults.model must not be blank']],
  ['a field one level too high', `{ bindings: [{ agentId: "a", channel: "irc" }] }`, ['did you mean bindings[].match.channel?']],
  ['deep nesting', `{ bindings: ${'['.repeat(2_500)}${']'.repeat(2_500)} }`, ['nested too deeply']],
  ['a prototype name', `{ "__proto__": { session: {} } }`, ['__proto__ is not a usable name']],
  ['a list at the top', `[]`, ['c.json5:1:1  the config is not valid', 'allowed: an object']],
  ['broken JSON5', `{\n  session: {,\n}`, ['c.json5:2:13  the file is not valid JSON5']],
  ['an empty file', ``, ['the file is not valid JSON5', 'an empty config is written {}']],
  ['absurd nesting', '['.repeat(100_000), ['nested too deeply']],
];

test.each(mistakes)('%s is reported with its place and what to do', (_, text, says) => {
  const message = failure(text);
  for (const part of says) expect(message).toContain(part);
});

describe('a config', () => {
  it('has a value for everything without a file', () => {
    expect(defaultConfig()).toEqual(read('{}').config);
    expect(defaultConfig().session).toMatchObject({
      scope: 'per-sender',
      dmScope: 'main',
      mainKey: 'main',
      agentToAgent: { maxPingPongTurns: 5 },
    });
  });

  it('is JSON5: comments, bare names, single quotes, trailing commas, a byte order mark', () => {
    expect(read(`\uFEFF{ // why\n session: { dmScope: 'per-peer', }, /* x */ }`).config.session.dmScope).toBe('per-peer');
  });

  it('takes values from the environment, and $${ as it is', () => {
    const { config } = read(`{ agents: { list: [{ id: "a", name: "\${WHO} and $\${WHO}" }] } }`, { WHO: 'Ana' });
    expect(config.agents.list[0]?.name).toBe('Ana and ${WHO}');
  });

  it('lists all problems at once, up to twenty', () => {
    const message = failure(`{ ${Array.from({ length: 30 }, (_, n) => `x${n}: 1`).join(', ')} }`);
    expect(message).toContain('config has 30 problems');
    expect(message).toContain('… and 10 more');
  });

  it('names a file that is missing', () => {
    expect(() => loadConfig('/nowhere/c.json5', {})).toThrow(/config file \/nowhere\/c.json5 does not exist/);
  });

  it('names a file that is a directory', () => {
    expect(() => loadConfig('/', {})).toThrow(/config file \/ cannot be read/);
  });
});

describe('what was found', () => {
  const secret = 'sk-very-secret';

  it.each([
    ['a secret of the wrong type', `{ hooks: { token: 12345678 } }`, '12345678'],
    ['text where an object with secrets belongs', `{ models: { providers: { openai: "${secret}" } } }`, secret],
    ['a secret under a misspelt name', `{ models: { providers: { openai: { type: "openai", apikey: "${secret}" } } } }`, secret],
    ['a channel given as text', `{ channels: { telegram: "${secret}" } }`, secret],
    ['arguments of the wrong type', `{ mcp: { servers: { x: { command: "x", args: "--token=${secret}" } } } }`, secret],
    ['an address with a password', `{ models: { providers: { x: { type: "openai", baseUrl: "htps://u:${secret}@h/" } } } }`, secret],
    ['a list of secrets', `{ mcp: { servers: { x: { command: "x", env: ["${secret}"] } } } }`, secret],
  ])('does not show %s', (_, text, hidden) => {
    expect(failure(text)).not.toContain(hidden);
  });

  it.each([
    ['a word list', `{ session: { dmScope: "\${SECRET}" } }`],
    ['a pattern', `{ policy: { rules: [{ id: "x", hook: "PRE_OUTPUT", match: { text: "\${SECRET}(" }, effect: "BLOCK" }] } }`],
    ['a format', `{ models: { providers: { x: { type: "openai", baseUrl: "\${SECRET}" } } } }`],
    [
      'a rule between fields',
      `{ session: { sendPolicy: { rules: [{ match: { channel: "a", surface: "\${SECRET}" }, action: "deny" }] } } }`,
    ],
  ])('does not show a value from the environment where %s refuses it', (_, text) => {
    expect(failure(text, { SECRET: secret })).not.toContain(secret);
  });
});

it('never fails in another way than with a list of problems, whatever the file holds', () => {
  const words = fc.constantFrom(
    '{',
    '}',
    '[',
    ']',
    ':',
    ',',
    'session',
    'agents',
    'list',
    'bindings',
    'policy',
    'rules',
    '"x"',
    '1',
    'null',
    '${X}',
    '"${X}"',
    '//',
    '\n',
    'match',
    '-',
    '__proto__',
  );
  const json = fc.json().map((text) => `{ session: ${text}, bindings: [${text}], policy: { rules: [${text}] } }`);
  fc.assert(
    fc.property(
      fc.oneof(
        fc.array(words, { maxLength: 30 }).map((list) => list.join(' ')),
        json,
        fc.string({ unit: 'binary' }),
      ),
      (text) => {
        try {
          read(text);
        } catch (thrown) {
          expect(thrown).toBeInstanceOf(InterlaneError);
        }
      },
    ),
  );
});
