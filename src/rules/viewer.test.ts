// Viewers: what each may see agrees with policy on single sessions and with the scope of its lists.
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readConfig } from '../config/load.ts';
import { levels, visibilities } from '../protocol/labels.ts';
import { SessionFacts } from '../protocol/session.ts';
import { compileWorld, decide, partyOf, passesScope, type Party, type World } from './decide.ts';
import { join } from './taint.ts';
import { canSee, ceilingOf, mayRead, scopeFor, scopeNeedsAgents, type Fact, type Viewer } from './viewer.ts';

const party = (world: World, facts: object) => partyOf(world, SessionFacts.parse(facts));
const factOf = ({ storeKey, key, facts }: Party): Fact => ({
  key: storeKey,
  agent: key.agent,
  spawnedBy: facts.spawnedBy,
  level: join(facts.taint, facts.existTaint),
});

const world = fc
  .record({
    visibility: fc.constantFrom(...visibilities),
    enabled: fc.boolean(),
    allow: fc.subarray(['main', 'work', 'w*', '*']),
    mode: fc.constantFrom('off', 'non-main', 'all'),
  })
  .map(({ visibility, mode, ...agentToAgent }) => {
    const config = { tools: { sessions: { visibility }, agentToAgent }, agents: { defaults: { sandbox: { mode } } } };
    return compileWorld(readConfig(JSON.stringify(config), 'test.json5', {}).config);
  });
const key = fc.constantFrom('agent:main:main', 'agent:main:x', 'agent:work:main', 'agent:other:main', 'agent:work:subagent:2');
const level = fc.constantFrom(...levels);
const facts = fc.record(
  { key, spawnedBy: key, taint: level, existTaint: level, see: fc.constantFrom(...visibilities) },
  { requiredKeys: ['key'] },
);

describe('canSee', () => {
  it('says for a session and for an operator what decide says', () => {
    fc.assert(
      fc.property(world, facts, facts, level, (given, one, two, up) => {
        const [caller, target] = [party(given, one), party(given, two)];
        const allowed = (request: Parameters<typeof decide>[0]) => decide(request, given).effect === 'ALLOW';
        expect(canSee(given, { as: 'session', party: caller }, factOf(target))).toBe(allowed({ action: 'list', caller, target }));
        expect(canSee(given, { as: 'operator', level: up }, factOf(target))).toBe(
          allowed({ action: 'operate', level: up, target, sends: false }),
        );
      }),
    );
  });

  it("agrees with the scope of the viewer's lists", () => {
    fc.assert(
      fc.property(world, facts, facts, level, (given, one, two, up) => {
        const target = factOf(party(given, two));
        const viewers: Viewer[] = [
          { as: 'session', party: party(given, one) },
          { as: 'operator', level: up },
          { as: 'visitor', sessionKey: 'agent:work:main', level: up },
          { as: 'system' },
        ];
        for (const viewer of viewers) {
          const agents = scopeNeedsAgents(given, viewer) ? ['main', 'other', 'work'] : [];
          expect([viewer.as, canSee(given, viewer, target)]).toEqual([viewer.as, passesScope(scopeFor(given, viewer, agents), target)]);
        }
      }),
    );
  });
});

it.each<[viewer: Viewer, reads: string[]]>([
  [{ as: 'operator', level: 'PUBLIC' }, ['PUBLIC']],
  [{ as: 'operator', level: 'CONFIDENTIAL' }, ['PUBLIC', 'INTERNAL', 'CONFIDENTIAL']],
  [{ as: 'visitor', sessionKey: 'agent:main:main', level: 'INTERNAL' }, ['PUBLIC', 'INTERNAL']],
  [{ as: 'system' }, [...levels]],
])('%j reads %j', (viewer, reads) => {
  expect(levels.filter((one) => mayRead(viewer, one))).toEqual(reads);
  expect(ceilingOf(viewer)).toBe(reads.at(-1));
});
