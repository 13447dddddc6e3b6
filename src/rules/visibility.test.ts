// Visibility: self ⊂ tree ⊂ agent ⊂ all, a clamp that only narrows, and lists that agree with single decisions.
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { defaultConfig, readConfig } from '../config/load.ts';
import { visibilities, type Visibility } from '../protocol/labels.ts';
import { decideCrossing } from './agent-to-agent.ts';
import { compileWorld, decide, partyOf } from './decide.ts';
import { decideVisibility, listFilter, passesFilter, scopeOf, type Viewed, type Observer } from './visibility.ts';

const viewer: Observer = { key: 'agent:work:main', agent: 'work', sandboxed: false, sandboxVisibility: 'spawned' };
const itself: Viewed = { key: 'agent:work:main', agent: 'work' };
const child: Viewed = { key: 'agent:work:subagent:1', agent: 'work', spawnedBy: viewer.key };
const foreignChild: Viewed = { key: 'agent:home:subagent:2', agent: 'home', spawnedBy: viewer.key };
const grandchild: Viewed = { key: 'agent:work:subagent:3', agent: 'work', spawnedBy: child.key };
const sibling: Viewed = { key: 'agent:work:notes', agent: 'work' };
const stranger: Viewed = { key: 'agent:home:main', agent: 'home' };

const agent = fc.constantFrom('work', 'home', 'lab');
const keyOf = (id: string, name: string) => `agent:${id}:${name}`;
const name = fc.constantFrom('main', 'notes', 'subagent:1');
const setting = fc.constantFrom(...visibilities);
const anyViewer = fc
  .record({
    agent,
    name,
    sandboxed: fc.boolean(),
    sandboxVisibility: fc.constantFrom<'spawned' | 'all'>('spawned', 'all'),
    see: fc.option(setting, { nil: undefined }),
  })
  .map(({ name, ...rest }): Observer => Object.assign(rest, { key: keyOf(rest.agent, name) }));
const anyViewed = fc
  .record({ agent, name, spawnedBy: fc.option(fc.tuple(agent, name), { nil: undefined }) })
  .map(({ agent, name, spawnedBy }): Viewed => ({ agent, key: keyOf(agent, name), spawnedBy: spawnedBy && keyOf(...spawnedBy) }));
const crossing = fc.record({
  enabled: fc.boolean(),
  allow: fc.array(fc.constantFrom('work', 'home', 'l*', '*'), { maxLength: 3 }),
});

describe('decideVisibility', () => {
  it.each<[Visibility, Viewed[], string]>([
    ['self', [itself], 'only itself, not even its children'],
    ['tree', [itself, child, foreignChild], 'itself and what it spawned, one level'],
    ['agent', [itself, child, foreignChild, grandchild, sibling], 'also the sessions of its agent'],
    ['all', [itself, child, foreignChild, grandchild, sibling, stranger], 'everything; other agents are another gate'],
  ])('%s shows %j: %s', (level, expected) => {
    const everyone = [itself, child, foreignChild, grandchild, sibling, stranger];
    expect(everyone.filter((target) => decideVisibility(level, viewer, target).allowed)).toEqual(expected);
  });

  it('shows at a wider level whatever a narrower one shows', () => {
    fc.assert(
      fc.property(setting, setting, anyViewer, anyViewed, (a, b, who, target) => {
        const [narrow, wide] = visibilities.indexOf(a) <= visibilities.indexOf(b) ? [a, b] : [b, a];
        const [inNarrow, inWide] = [narrow, wide].map((level) => decideVisibility(level, who, target).allowed);
        expect(inNarrow && !inWide).toBe(false);
      }),
    );
  });

  it('always shows a session to itself', () => {
    fc.assert(
      fc.property(setting, anyViewer, (level, who) => {
        expect(decideVisibility(level, who, { key: who.key, agent: who.agent }).allowed).toBe(true);
      }),
    );
  });
});

describe('the sandbox clamp', () => {
  it.each<[Visibility, 'spawned' | 'all', Visibility, string]>([
    ['self', 'spawned', 'self', 'the clamp never widens'],
    ['tree', 'spawned', 'tree', 'already the tree'],
    ['agent', 'spawned', 'tree', 'at most the tree'],
    ['all', 'spawned', 'tree', 'at most the tree'],
    ['self', 'all', 'self', 'no clamp, and nothing is added'],
    ['all', 'all', 'all', 'no clamp'],
  ])('makes of %s with "%s" %s: %s', (level, sandboxVisibility, expected) => {
    expect(scopeOf(level, { ...viewer, sandboxed: true, sandboxVisibility }).visibility).toBe(expected);
    expect(scopeOf(level, { ...viewer, sandboxed: false, sandboxVisibility }).visibility).toBe(level);
  });

  it('never shows what the same session would not see unconfined', () => {
    fc.assert(
      fc.property(setting, anyViewer, anyViewed, (level, who, target) => {
        const confined = decideVisibility(level, { ...who, sandboxed: true }, target).allowed;
        expect(confined && !decideVisibility(level, { ...who, sandboxed: false }, target).allowed).toBe(false);
      }),
    );
  });

  it.each([
    ['agent:work:main', 'ALLOW', 'a main session is not confined by "non-main"'],
    ['agent:work:subagent:1', 'BLOCK', 'a sub-agent is'],
    ['agent:work:main:thread:7', 'BLOCK', 'so is a thread of the main session'],
  ])('holds for %s by the mode of its agent: %s (%s)', (key, effect) => {
    const text = '{ agents: { defaults: { sandbox: { mode: "non-main" } } }, tools: { sessions: { visibility: "agent" } } }';
    const world = compileWorld(readConfig(text, 'test.json5', {}).config);
    const [caller, target] = [key, 'agent:work:notes'].map((of) => partyOf(world, { key: of, taint: 'PUBLIC', existTaint: 'PUBLIC' }));
    expect(decide({ action: 'read', caller: caller!, target: target! }, world).effect).toBe(effect);
  });

  it('and `tree` are what holds when nothing is configured', () => {
    const config = defaultConfig();
    expect(config.tools.sessions.visibility).toBe('tree');
    expect(config.agents.defaults.sandbox.sessionToolsVisibility).toBe('spawned');
  });
});

describe('a grant of the operator', () => {
  it.each<[Visibility, Visibility, boolean, Visibility, string]>([
    ['tree', 'all', false, 'all', 'more than all others see'],
    ['all', 'tree', false, 'tree', 'less than all others see'],
    ['all', 'all', true, 'tree', 'a sandbox holds all the same'],
    ['tree', 'self', true, 'self', 'and never widens'],
  ])('makes of %s with %s, sandboxed %s, %s: %s', (level, see, sandboxed, expected) => {
    const { visibility, why } = scopeOf(level, { ...viewer, sandboxed, see });
    expect([visibility, why]).toEqual([expected, expect.stringContaining(`the operator lets this session see "${see}"`)]);
  });

  it('is the same as a setting of that width for this one session', () => {
    fc.assert(
      fc.property(setting, setting, anyViewer, anyViewed, (level, see, who, target) => {
        const granted = decideVisibility(level, { ...who, see }, target).allowed;
        expect(granted).toBe(decideVisibility(see, { ...who, see: undefined }, target).allowed);
      }),
    );
  });
});

describe('a list', () => {
  it('has exactly the sessions that visibility and agent-to-agent allow one by one', () => {
    fc.assert(
      fc.property(setting, crossing, anyViewer, anyViewed, (level, gate, who, row) => {
        const others = row.agent === who.agent ? [] : [row.agent];
        const filter = listFilter(level, gate, who, others);
        const reached = row.spawnedBy === who.key || decideCrossing(gate, who.agent, row.agent).allowed;
        expect(passesFilter(filter, row)).toBe(decideVisibility(level, who, row).allowed && reached);
      }),
    );
  });
});
