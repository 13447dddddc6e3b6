import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readConfig } from '../config/load.ts';
import { SessionFacts } from '../protocol/session.ts';
import { guestToolNames, toolNames } from '../protocol/tool.ts';
import { compileWorld, decide, partyOf, toolFor, usableServers } from './decide.ts';
import { explainTools, toolNamesOf } from './explain.ts';

/** Without a list of agents, a binding makes "ana" one. */
const worldOf = (text: string) => {
  const { config } = readConfig(text, 'test.json5', {});
  return compileWorld({ ...config, bindings: [{ agentId: 'ana', match: { channel: 'irc' } }] });
};
const ask = (config: string, facts: object, tool: string) => {
  const world = worldOf(config);
  return toolFor(world, partyOf(world, SessionFacts.parse({ key: 'agent:ana:main', ...facts })), tool);
};

const ana = (tools: string, more = '') => `{ agents: { list: [{ id: 'ana', tools: ${tools} ${more} }] } }`;
const child = { key: 'agent:ana:subagent:1', depth: 1, spawnedBy: 'agent:ana:main' };
const guest = { key: 'agent:ana:guest:g' };
const outside = (server: string, more = '') => `{ mcp: { servers: { gh: { url: 'http://127.0.0.1:1', ${server} } } } ${more} }`;
const sandboxed = (tools: string) => `, agents: { list: [{ id: 'ana', sandbox: { mode: 'all' }, tools: ${tools} }] }`;

describe('a session gets a tool', () => {
  it.each<[string, string, object, string, boolean, RegExp]>([
    ['unless something says otherwise', '{}', {}, 'sessions_list', true, /are not limited/],
    ['its agent does not deny', ana(`{ deny: ['files_*'] }`), {}, 'files_read', false, /deny of tools of agent "ana" has "files_\*"/],
    ['its agent allows', ana(`{ allow: ['files_*'] }`), {}, 'files_read', true, /allow of tools of agent "ana" has "files_\*"/],
    ['and no other', ana(`{ allow: ['files_*'] }`), {}, 'sessions_list', false, /allow of tools of agent "ana" does not have it/],
    ['deny beats allow', ana(`{ allow: ['*'], deny: ['files_write'] }`), {}, 'files_write', false, /deny/],
    ['an empty allow is nothing', ana('{ allow: [] }'), {}, 'sessions_list', false, /allow/],
    [
      'of its channel',
      `{ tools: { channels: { Discord: { deny: ['sessions_send'] } } } }`,
      { key: 'agent:ana:discord:group:9' },
      'sessions_send',
      false,
      /deny of tools\.channels\.discord has "sessions_send"/,
    ],
    ['not of another', `{ tools: { channels: { irc: { deny: ['*'] } } } }`, { key: 'agent:ana:discord:group:9' }, 'x', true, /not limited/],
    ['that is no session tool, as a child', '{}', child, 'files_read', true, /are not limited/],
    ['named for children', `{ tools: { subagents: { tools: { allow: ['sessions_send'] } } } }`, child, 'sessions_send', true, /allow/],
    [
      'and then no other',
      `{ tools: { subagents: { tools: { allow: ['sessions_send'] } } } }`,
      child,
      'files_read',
      false,
      /does not have it/,
    ],
    ['children are denied', `{ tools: { subagents: { tools: { deny: ['files_*'] } } } }`, child, 'files_read', false, /deny/],
    [
      'for spawning only where there is depth left',
      `{ tools: { subagents: { tools: { allow: ['*'] } } } }`,
      child,
      'sessions_spawn',
      false,
      /1 deep.*maxSpawnDepth is 1/,
    ],
    [
      'for spawning where depth and list say so',
      `{ agents: { defaults: { subagents: { maxSpawnDepth: 2 } } }, tools: { subagents: { tools: { allow: ['sessions_*'] } } } }`,
      child,
      'sessions_spawn',
      true,
      /allow of tools\.subagents\.tools has/,
    ],
    [
      'for spawning not by depth alone',
      '{ agents: { defaults: { subagents: { maxSpawnDepth: 2 } } } }',
      child,
      'sessions_spawn',
      false,
      /no session tools/,
    ],
    ['a child by its key alone', '{}', { key: 'agent:ana:acp:1' }, 'sessions_list', false, /no session tools/],
    ['to take its turns with, as a guest, whatever the lists say', ana('{ allow: [] }'), guest, 'inbox', true, /guest takes its turns/],
    ['that is no such one by the lists, as a guest', ana('{ allow: [] }'), guest, 'sessions_list', false, /does not have it/],
    ['to take turns with only as a guest', ana(`{ allow: ['*'] }`), {}, 'reply', false, /only a guest/],
    ['of an outside server', outside(''), {}, 'gh__issues', true, /accepts PUBLIC/],
    [
      'of an outside server for its agents',
      outside(`agents: ['bo']`),
      {},
      'gh__issues',
      false,
      /mcp\.servers\.gh\.agents does not have "ana"/,
    ],
    ['of an outside server for its agents', outside(`agents: ['Ana']`), {}, 'gh__issues', true, /has "ana"/],
    ['of an outside server not from a sandbox', outside('', sandboxed('{}')), {}, 'gh__issues', false, /sandboxed/],
    ['unless its agent names it', outside('', sandboxed(`{ allow: ['gh__*'] }`)), {}, 'gh__issues', true, /sandboxed/],
    ['its own from a sandbox', outside('', sandboxed('{}')), {}, 'files_read', true, /not limited/],
    ['whose server may know what it knows', outside(''), { taint: 'INTERNAL' }, 'gh__issues', false, /is INTERNAL.*accepts PUBLIC/],
    ['whose server accepts it', outside(`accepts: 'INTERNAL'`), { taint: 'INTERNAL' }, 'gh__issues', true, /accepts INTERNAL/],
    ['whose server is at its level', outside(`level: 'CONFIDENTIAL'`), { taint: 'INTERNAL' }, 'gh__issues', true, /accepts CONFIDENTIAL/],
  ])('%s: %s %j %s → %s', (_, config, facts, tool, allowed, why) => {
    expect(ask(config, facts, tool)).toMatchObject({ tool, allowed, why: expect.stringMatching(why) });
  });

  it.each(
    ['list', 'history', 'send', 'search', 'spawn', 'yield']
      .map((name) => `sessions_${name}`)
      .concat('session_status', 'agents_list', 'subagents', 'message'),
  )('a spawned session has no %s by itself', (tool) => {
    expect(ask('{}', child, tool)).toMatchObject({ allowed: false, code: 'TOOL_NOT_ALLOWED' });
  });

  it('exactly when policy lets it call it, for every list and session', () => {
    const list = fc.record({
      allow: fc.option(fc.subarray(['*', 'sessions_*', 'files_read', 'gh__*']), { nil: undefined }),
      deny: fc.subarray(['sessions_send', 'gh__x', '*_read']),
    });
    const facts = fc.constantFrom({ key: 'agent:ana:main' }, child, guest, { key: 'agent:ana:irc:direct:1', taint: 'INTERNAL' });
    const tool = fc.constantFrom(...toolNames, ...guestToolNames, 'files_read', 'gh__x', 'gh__y', 'other');
    fc.assert(
      fc.property(list, list, list, facts, tool, (own, children, irc, held, name) => {
        const tools = { subagents: { tools: children }, channels: { irc } };
        const config = { agents: { list: [{ id: 'ana', tools: own }] }, tools, mcp: { servers: { gh: { command: 'x' } } } };
        const world = worldOf(JSON.stringify(config));
        const party = partyOf(world, SessionFacts.parse(held));
        const answer = toolFor(world, party, name);
        const decision = decide({ action: 'tool', caller: party, tool: name }, world);
        expect(decision.effect === 'BLOCK').toBe(!answer.allowed);
        expect(answer.rules.some((rule) => rule.effect === 'BLOCK')).toBe(!answer.allowed);
        // A server that could give it something is one that is started for it.
        if (answer.allowed && name.startsWith('gh__')) expect(usableServers(world, party)).toContain('gh');
      }),
    );
  });
});

describe('a server', () => {
  it.each<[string, string, object, boolean]>([
    ['for everybody', outside(''), {}, true],
    ['of another agent', outside(`agents: ['bo']`), {}, false],
    ['of which every tool is denied', outside('', `, agents: { list: [{ id: 'ana', tools: { deny: ['gh_*'] } }] }`), {}, false],
    ['of which one tool is denied', outside('', `, agents: { list: [{ id: 'ana', tools: { deny: ['gh__x'] } }] }`), {}, true],
    ['of which one tool is allowed', outside('', `, agents: { list: [{ id: 'ana', tools: { allow: ['GH__x'] } }] }`), {}, true],
    ['of which none is allowed', outside('', `, agents: { list: [{ id: 'ana', tools: { allow: ['files_*'] } }] }`), {}, false],
    ['outside of a sandbox', outside('', sandboxed('{}')), {}, false],
    ['that may not know what the session knows', outside(''), { taint: 'INTERNAL' }, false],
  ])('%s is started for a session only if it can use it: %s', (_, config, facts, started) => {
    const world = worldOf(config);
    const party = partyOf(world, SessionFacts.parse({ key: 'agent:ana:main', ...facts }));
    expect(usableServers(world, party)).toEqual(started ? ['gh'] : []);
  });
});

describe('an outside tool call', () => {
  it('is asked about at a hook of its own as well', () => {
    const rules = `, policy: { rules: [{ id: 'r', hook: 'MCP_TOOL_CALL', match: { text: 'secret' }, effect: 'BLOCK', message: 'not there' }] }`;
    const world = worldOf(outside('', rules));
    const caller = partyOf(world, SessionFacts.parse({ key: 'main' }));
    const effect = (tool: string) => decide({ action: 'tool', caller, tool, text: 'a secret' }, world).effect;
    expect([effect('gh__issues'), effect('sessions_list'), effect('gx__issues')]).toEqual(['BLOCK', 'ALLOW', 'ALLOW']);
  });
});

describe('explain tools', () => {
  it('has a line for every tool there is, and every rule about one', () => {
    const world = worldOf(outside(`agents: ['bo']`));
    const session = SessionFacts.parse({ key: 'main' });
    const all = explainTools(world, { session }, toolNamesOf(world), undefined);
    expect(all.rules.map(({ rule }) => rule)).toEqual([...toolNames, 'gh__*']);
    expect(all.answer).toBe(`agent:main:main gets ${toolNames.length} of ${toolNames.length + 1} tools`);
    const visitor = explainTools(world, { session: SessionFacts.parse(guest) }, toolNamesOf(world), undefined);
    expect(visitor.rules.map(({ rule }) => rule)).toEqual([...toolNames, ...guestToolNames, 'gh__*']);
    const one = explainTools(world, { session, tool: 'gh__issues' }, [], undefined);
    expect(one.answer).toBe('agent:main:main gets not gh__issues');
    expect(one.rules.map(({ rule, effect }) => `${rule} ${effect}`)).toEqual([
      'agent.tools ALLOW',
      'mcp.agents BLOCK',
      'taint.write ALLOW',
    ]);
  });
});
