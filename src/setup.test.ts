// The one check of a config: each finding with its place, its value as written, and what was probably meant.
import { describe, expect, it } from 'vitest';
import { readConfig } from './config/load.ts';
import { makeSetup, type SetupParts } from './setup.ts';

const file = 'c.json5';
const setupOf = (text: string, env: Record<string, string> = {}, known: SetupParts['known'] = {}) =>
  makeSetup(readConfig(text, file, env), 1, { stateDir: '/nowhere/state', found: undefined, known: { canRun: () => true, ...known } });
const warningsOf = (...given: Parameters<typeof setupOf>) => setupOf(...given).warnings;
const twoAgents = `agents: { list: [{ id: 'main' }, { id: 'work' }] }`;

describe('a config is refused', () => {
  it.each([
    [`{ agents: { defaults: { model: 'opanai/gpt-5' } }, models: { providers: { openai: { type: 'openai' } } } }`, '1:32', 'openai/gpt-5'],
    [`{ agents: { list: [{ id: 'a', model: 'claude-sonnet' }] } }`, '1:38', 'provider/model'],
    [`{ agents: { defaults: { model: 'openai/gpt-5' } } }`, '1:32', "openai: { type: 'openai', apiKey: '${OPENAI_API_KEY}' }"],
    [`{ models: { providers: { l: { type: 'openai-compatible' } } } }`, '1:26', 'models.providers.l needs baseUrl'],
    [`{ mcp: { servers: { 'my server': { url: 'http://x' } } } }`, '1:21', 'it must be of a-z'],
    [`{ agents: { defaults: { fallbacks: ['x/y'] } } }`, '1:37', 'models.providers has: none'],
    [`{ agents: { list: [{ id: 'a', workspace: '/nowhere' }] } }`, '1:42', 'choose another directory'],
  ])('%s', (text, at, named) => {
    expect(() => setupOf(text)).toThrow(
      expect.objectContaining({ code: 'CONFIG_INVALID', message: expect.stringContaining(`${file}:${at}  `) }),
    );
    expect(() => setupOf(text)).toThrow(named);
  });

  it('with all its problems at once, in the order of the file', () => {
    const text = `{\n agents: { list: [{ id: 'a', model: 'b' }],\n  defaults: { model: 'a', fallbacks: ['c'] } } }`;
    const lines = (() => {
      try {
        setupOf(text);
        return '';
      } catch (thrown) {
        return (thrown as Error).message;
      }
    })();
    expect(lines.match(/c\.json5:\d+:\d+/g)).toEqual(['c.json5:2:37', 'c.json5:3:22', 'c.json5:3:39']);
  });
});

describe('a config has a warning', () => {
  const cases: [string, string, string][] = [
    [`{ agents: { list: [{ id: 'My Agent!' }] } }`, `1:26  agents.list[0].id 'My Agent!' `, '"my-agent"'],
    [
      `{ ${twoAgents}, tools: { agentToAgent: { enabled: true, allow: ['main', 'wrok'] } } }`,
      `tools.agentToAgent.allow[1] 'wrok' `,
      '"work"',
    ],
    [`{ ${twoAgents}, tools: { agentToAgent: { allow: ['main'] } } }`, 'tools.agentToAgent.allow ', 'enabled: true'],
    [`{ ${twoAgents}, bindings: [{ agentId: 'wrok', match: { channel: 'x' } }] }`, `bindings[0].agentId 'wrok' `, '"work"'],
    [`{ tools: { channels: { telegramm: {} } } }`, '1:24  tools.channels.telegramm ', '"telegram"'],
    [
      `{ session: { sendPolicy: { rules: [{ action: 'deny', match: { channel: 'discrod' } }] } } }`,
      `match.channel 'discrod' `,
      '"discord"',
    ],
    [`{ agents: { list: [{ id: 'a', subagents: { allowAgents: ['b', '*'] } }] } }`, `allowAgents[0] 'b' `, 'is not in agents.list'],
    [`{ agents: { list: [{ id: 'a', tools: { allow: ['sesions_list'] } }] } }`, `tools.allow[0] 'sesions_list' `, '"sessions_list"'],
    [`{ tools: { subagents: { tools: { deny: ['nothing_*'] } } } }`, `deny[0] 'nothing_*' `, 'matches no tool'],
    [
      `{ tools: { channels: { irc: { deny: ['giithub__x'] } } }, mcp: { servers: { github: { command: 'x' } } } }`,
      `'giithub__x' `,
      '"github__x"',
    ],
    [`{ classification: { tools: { files_raed: 'INTERNAL' } } }`, '1:30  classification.tools.files_raed ', '"files_read"'],
    [`{ channels: { telegram: {} }, bindings: [{ agentId: 'main', match: { channel: 'telegrm' } }] }`, `'telegrm' `, '"telegram"'],
    [
      `{ channels: { telegram: {} }, classification: { channels: { slack: 'INTERNAL' } } }`,
      'classification.channels.slack ',
      'not a channel',
    ],
    [`{ mcp: { servers: { x: { command: 'no-such-program' } } } }`, `mcp.servers.x.command 'no-such-program' `, 'install it'],
    [`{ mcp: { servers: { x: { url: 'http://127.0.0.1:1', agents: ['wrok'] } } }, ${twoAgents} }`, `agents[0] 'wrok' `, '"work"'],
    [
      `{ ${twoAgents}, policy: { rules: [{ id: 'a', hook: 'PRE_TOOL_CALL', match: { agentId: 'wrok', tool: 'files_rit*' }, effect: 'BLOCK' }] } }`,
      `match.agentId 'wrok' `,
      '"work"',
    ],
    [
      `{ policy: { rules: [{ id: 'a', hook: 'SECRET_ACCESS', effect: 'BLOCK' }] } }`,
      `policy.rules[0].hook 'SECRET_ACCESS' `,
      'has no effect',
    ],
    [`{ policy: { rules: [{ id: 'b', hook: 'PRE_OUTPUT', match: { tool: 'x' }, effect: 'BLOCK' }] } }`, 'match.tool ', 'never matches'],
    [`{ agents: { list: [{ id: 'a', default: true }, { id: 'b', default: true }] } }`, 'agents.list[1].default true ', 'agents.list[0]'],
    [`{ session: { identityLinks: { ana: ['x:1'], bea: ['X:1'] } } }`, `session.identityLinks.bea[0] 'X:1' `, '"ana"'],
    [`{\n hooks: { enabled: true } }`, '2:2  hooks ', 'has no effect yet'],
    [
      `{ bindings: [{ agentId: 'a', match: { channel: 'x' } }, { agentId: 'b', match: { channel: 'X' } }] }`,
      '1:57  bindings[1] ',
      'bindings[0]',
    ],
  ];
  it.each(cases)('%s', (text, place, named) => {
    const warnings = warningsOf(text, {}, { canRun: (command) => command !== 'no-such-program' });
    const found = warnings.find((line) => line.includes(place));
    expect(found).toMatch(/^c\.json5:\d+:\d+ {2}/);
    expect(found).toContain(named);
  });

  it('in the order of the file, and none in an ordinary one', () => {
    const text = `{ bindings: [{ agentId: 'b', match: { channel: 'x' } }],\n agents: { list: [{ id: 'A' }] } }`;
    expect(warningsOf(text).map((line) => line.split('  ')[0])).toEqual(['c.json5:1:25', 'c.json5:2:25']);
    expect(warningsOf(`{ session: { dmScope: "per-peer" }, bindings: [{ agentId: "main", match: { channel: "irc" } }] }`)).toEqual([]);
    expect(
      warningsOf(`{ mcp: { servers: { gh: { command: 'x' } } }, agents: { list: [{ id: 'a', tools: { allow: ['gh__*', 'g*'] } }] } }`),
    ).toEqual([]);
  });

  it('that does not repeat a value from the environment', () => {
    const text = `{ agents: { list: [{ id: "\${WHO}" }, { id: "b", subagents: { allowAgents: ["\${WHO2}"] } }] } }`;
    const warnings = warningsOf(text, { WHO: 'Top Secret', WHO2: 'top-secre' });
    expect(warnings).toHaveLength(2);
    expect(warnings.join()).not.toMatch(/secre/i);
    expect(() => setupOf(`{ agents: { defaults: { model: "\${M}" } } }`, { M: 'Top Secret' })).toThrow(
      expect.not.stringContaining('Secret') as Error,
    );
  });
});

it('a program of an outside server is looked for in PATH and at its path', () => {
  const at = (command: string, env = {}) =>
    makeSetup(readConfig(JSON.stringify({ mcp: { servers: { x: { command, env } } } }), file, {}), 1, {
      stateDir: '/nowhere',
      found: undefined,
    }).warnings;
  expect(at('node')).toEqual([]);
  expect(at(process.execPath)).toEqual([]);
  expect(at('node', { PATH: '/nowhere' })).toHaveLength(1);
  expect(at('/nowhere/node')).toHaveLength(1);
  expect(at('/')).toHaveLength(1);
});
