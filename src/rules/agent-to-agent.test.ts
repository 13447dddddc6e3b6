// Agent to agent: off until enabled, then both agents must be on the list, if there is one; own children are exempt.
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { defaultConfig, readConfig } from '../config/load.ts';
import { AgentToAgent } from '../protocol/settings.ts';
import { decideCrossing } from './agent-to-agent.ts';
import { compileWorld, decide, partyOf } from './decide.ts';

describe('decideCrossing', () => {
  it.each<[object, string, string, boolean, string]>([
    [{}, 'work', 'home', false, 'off until someone enables it'],
    [{}, 'work', 'work', true, 'one agent needs no leave to reach itself'],
    [{ allow: ['*'] }, 'work', 'home', false, 'a list alone enables nothing'],
    [{ enabled: false, allow: ['work', 'home'] }, 'work', 'home', false, 'disabled beats the list'],
    [{ enabled: true }, 'work', 'home', true, 'no list is every agent'],
    [{ enabled: true, allow: [] }, 'work', 'home', true, 'an empty list is every agent'],
    [{ enabled: true, allow: ['work', 'home'] }, 'work', 'home', true, 'both sides are listed'],
    [{ enabled: true, allow: ['work'] }, 'work', 'home', false, 'the other side is not listed'],
    [{ enabled: true, allow: ['home'] }, 'work', 'home', false, 'the own side is not listed'],
    [{ enabled: true, allow: ['nobody'] }, 'work', 'work', true, 'one agent needs no place on the list'],
    [{ enabled: true, allow: ['team-*'] }, 'team-a', 'team-b', true, 'one pattern may match both'],
    [{ enabled: true, allow: ['team-*'] }, 'team-a', 'home', false, 'a pattern that matches one side only'],
    [{ enabled: true, allow: ['WORK', 'Home'] }, 'work', 'home', true, 'patterns match in any case'],
    [{ enabled: true, allow: ['*'] }, 'work', 'home', true, 'a star is every agent'],
  ])('%j from %s to %s is %j: %s', (setting, from, to, expected) => {
    expect(decideCrossing(AgentToAgent.parse(setting), from, to).allowed).toBe(expected);
  });

  it('says which agent has no place on the list', () => {
    const setting = AgentToAgent.parse({ enabled: true, allow: ['work'] });
    expect(decideCrossing(setting, 'work', 'home').why).toContain('agent "home"');
  });

  it('is the same in both directions', () => {
    const agent = fc.constantFrom('work', 'home', 'team-a', 'team-b');
    const setting = fc.record({
      enabled: fc.boolean(),
      allow: fc.array(fc.constantFrom('work', 'home', 'team-*', '*-b', '*'), { maxLength: 3 }),
    });
    fc.assert(
      fc.property(setting, agent, agent, (given, a, b) => {
        expect(decideCrossing(given, a, b).allowed).toBe(decideCrossing(given, b, a).allowed);
      }),
    );
  });
});

describe("a session's own children", () => {
  const parent = { key: 'agent:work:main', taint: 'PUBLIC', existTaint: 'PUBLIC' } as const;
  const child = { ...parent, key: 'agent:home:subagent:1', spawnedBy: parent.key };

  it.each(['list', 'read', 'status', 'send'] as const)('are exempt from the gate for %s, though their agent is another', (action) => {
    const world = compileWorld({ ...defaultConfig(), bindings: [{ agentId: 'home', match: { channel: 'irc' } }] });
    const [caller, target] = [partyOf(world, parent), partyOf(world, child)];
    expect(decide({ action, caller, target }, world).effect).toBe('ALLOW');
  });

  it('are not a way back: the child does not reach its parent', () => {
    const world = compileWorld(readConfig('{ tools: { sessions: { visibility: "all" } } }', 'test.json5', {}).config);
    const [caller, target] = [partyOf(world, child), partyOf(world, parent)];
    const answer = decide({ action: 'read', caller, target }, world);
    expect([answer.effect, answer.hidden, answer.code]).toEqual(['BLOCK', true, 'SESSION_NOT_FOUND']);
  });
});
