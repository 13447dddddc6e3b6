// Spawning: how deep, under which agents, and never out of a sandbox.
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readConfig } from '../config/load.ts';
import { compileAgents } from './agents.ts';
import { requireSessionKey } from './session-key.ts';
import { decideSpawn, spawnableAgents, type SpawnRequest } from './spawn-policy.ts';

interface Asked extends Partial<Omit<SpawnRequest, 'requester'>> {
  from?: string;
}

const configOf = (agents: object) => readConfig(JSON.stringify({ agents }), 'test.json5', {}).config;

function spawn(agents: object, { from = 'agent:work:main', ...asked }: Asked) {
  const config = configOf(agents);
  const requester = requireSessionKey(from, { agentId: 'work', mainKey: 'main' });
  const request: SpawnRequest = { requester, depth: 0, runtime: 'subagent', sandbox: 'inherit', ...asked };
  return decideSpawn(compileAgents(config), config.agents.defaults.subagents.maxSpawnDepth, request);
}

function outcome(agents: object, asked: Asked): string {
  const answer = spawn(agents, asked);
  return answer.allowed ? answer.agentId : answer.code;
}

describe('which agents may be spawned', () => {
  const list = (allowAgents?: string[]) => ({ list: [{ id: 'work', subagents: { allowAgents } }, { id: 'home' }, { id: 'lab' }] });

  it.each<[object, Asked, string, string]>([
    [list(), {}, 'work', 'without an agent id, its own'],
    [list(), { agentId: 'work' }, 'work', 'its own by name'],
    [list([]), { agentId: 'work' }, 'work', 'its own, even with an empty list'],
    [list(), { agentId: 'home' }, 'AGENT_NOT_ALLOWED', 'only its own by default'],
    [list(['home']), { agentId: 'home' }, 'home', 'on the list'],
    [list(['home']), { agentId: ' Home ' }, 'home', 'on the list, in any case'],
    [list(['home']), { agentId: 'lab' }, 'AGENT_NOT_ALLOWED', 'not on the list'],
    [list(['*']), { agentId: 'lab' }, 'lab', 'a star is any agent'],
    [list(['*']), { agentId: 'nobody' }, 'AGENT_NOT_ALLOWED', 'a star is any agent there is'],
    [list(['nobody']), { agentId: 'nobody' }, 'AGENT_NOT_ALLOWED', 'an agent that is listed nowhere'],
    [list(['*']), { agentId: '' }, 'AGENT_NOT_ALLOWED', 'a blank name is a mistake'],
    [list(['*']), { agentId: '*' }, 'AGENT_NOT_ALLOWED', 'a star is not an agent'],
    [list(['*']), { agentId: 'home!' }, 'AGENT_NOT_ALLOWED', 'a name is not repaired into another agent'],
    [{ ...list(), defaults: { subagents: { allowAgents: ['lab'] } } }, { agentId: 'lab' }, 'lab', 'the default list'],
    [
      { ...list(['home']), defaults: { subagents: { allowAgents: ['lab'] } } },
      { agentId: 'lab' },
      'AGENT_NOT_ALLOWED',
      'the own list only',
    ],
    [
      { defaults: { subagents: { allowAgents: ['*'] } } },
      { agentId: 'any' },
      'AGENT_NOT_ALLOWED',
      'without agents.list there is no other agent',
    ],
    [{ defaults: { subagents: { allowAgents: ['*'] } } }, { agentId: 'main' }, 'main', 'without agents.list there is "main"'],
  ])('with %j, %j gives %s: %s', (agents, asked, expected) => {
    expect(outcome(agents, asked)).toBe(expected);
  });

  it('are those that spawnableAgents lists, also in a sandbox and at the depth limit', () => {
    const id = fc.constantFrom('work', 'home', 'lab', 'nobody', 'Night Shift');
    const agents = fc.record({
      list: fc.uniqueArray(
        fc.record({
          id,
          sandbox: fc.record({ mode: fc.constantFrom('off', 'non-main', 'all') }),
          subagents: fc.record({ allowAgents: fc.array(fc.oneof(id, fc.constant('*'))) }),
        }),
        {
          selector: (entry) => entry.id,
          minLength: 1,
        },
      ),
    });
    fc.assert(
      fc.property(
        agents,
        fc.nat(),
        fc.boolean(),
        fc.constantFrom(0, 1),
        fc.constantFrom('inherit' as const, 'require' as const),
        (given, pick, main, depth, sandbox) => {
          const table = compileAgents(configOf(given));
          const ids = [...table.byId.keys()];
          const requester = ids[pick % ids.length]!;
          const from = `agent:${requester}:${main ? 'main' : 'telegram:group:1'}`;
          const request = {
            requester: requireSessionKey(from, { agentId: requester, mainKey: 'main' }),
            depth,
            runtime: 'subagent' as const,
            sandbox,
          };
          const listed = spawnableAgents(table, 1, request);
          const allowed = (agentId: string) => outcome(given, { from, agentId, depth, sandbox }) === agentId;
          expect(listed.toSorted()).toEqual([...ids, 'elsewhere'].filter(allowed).toSorted());
        },
      ),
    );
  });
});

describe('how deep', () => {
  it.each<[number | undefined, number, string, string]>([
    [undefined, 0, 'work', 'a session nobody spawned'],
    [undefined, 1, 'SPAWN_DEPTH', 'a sub-agent spawns nothing by default'],
    [2, 1, 'work', 'someone wanted trees'],
    [2, 2, 'SPAWN_DEPTH', 'and said how high'],
    [2, 3, 'SPAWN_DEPTH', 'deeper than was ever allowed'],
  ])('with maxSpawnDepth %j at depth %i gives %s: %s', (maxSpawnDepth, depth, expected) => {
    const agents = { defaults: { subagents: { maxSpawnDepth } } };
    expect(outcome(agents, { from: 'agent:work:subagent:1', depth })).toBe(expected);
    expect(outcome(agents, { from: 'agent:work:subagent:1', depth, runtime: 'acp' })).toBe(expected);
  });
});

describe('the sandbox guard', () => {
  const mode = fc.constantFrom('off', 'non-main', 'all');

  it('lets a confined requester, or one that requires it, have only confined children', () => {
    const asked = fc.record({
      from: fc.constantFrom('agent:work:main', 'agent:work:telegram:group:1', 'agent:work:main:thread:2'),
      agentId: fc.constantFrom('work', 'home'),
      runtime: fc.constantFrom<'subagent' | 'acp'>('subagent', 'acp'),
      sandbox: fc.constantFrom<'inherit' | 'require'>('inherit', 'require'),
    });
    fc.assert(
      fc.property(mode, mode, asked, (work, home, request) => {
        const subagents = { allowAgents: ['*'] };
        const agents = {
          list: [
            { id: 'work', sandbox: { mode: work }, subagents },
            { id: 'home', sandbox: { mode: home } },
          ],
        };
        const confined = work === 'all' || (work === 'non-main' && request.from !== 'agent:work:main');
        const childConfined = request.runtime === 'subagent' && (request.agentId === 'work' ? work : home) !== 'off';
        const needed = confined || request.sandbox === 'require';
        expect(outcome(agents, request)).toBe(needed && !childConfined ? 'SANDBOX_REQUIRED' : request.agentId);
      }),
    );
  });

  it('is asked like the other rules, and the first that refuses gives the code', () => {
    const answer = spawn({ list: [{ id: 'work' }, { id: 'home' }] }, { agentId: 'home', depth: 1, sandbox: 'require' });
    expect(answer).toMatchObject({ allowed: false, code: 'SPAWN_DEPTH' });
    expect(answer.rules.map(({ rule, effect }) => [rule, effect])).toEqual([
      ['spawn.depth', 'BLOCK'],
      ['spawn.allowAgents', 'BLOCK'],
      ['spawn.sandbox', 'BLOCK'],
    ]);
  });
});
