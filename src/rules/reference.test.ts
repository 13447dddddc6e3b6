// References: text or label → what to look up, in order → the one session the caller may see, or an answer that gives nothing away.
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readConfig } from '../config/load.ts';
import type { SessionFacts } from '../protocol/session.ts';
import { compileAgents } from './agents.ts';
import { compileWorld, decide, partyOf } from './decide.ts';
import { operatorReferences, planReference, settleReference, type Lookup, type Reference } from './reference.ts';

const configOf = (text: string) => readConfig(text, 'test.json5', {}).config;
const agents = compileAgents(configOf('{ agents: { list: [{ id: "home" }, { id: "work" }] } }'));
const shared = compileAgents(configOf('{ agents: { list: [{ id: "home" }, { id: "work" }] }, session: { scope: "global" } }'));

const key = (text: string): Lookup => ({ by: 'key', key: text });
const id = (text: string): Lookup => ({ by: 'id', id: text });

function lookups(reference: Reference, caller = 'work', table = agents) {
  const planned = planReference(reference, caller, table);
  return planned.ok ? planned.plan.lookups : planned.code;
}

describe('planReference', () => {
  it.each<[string, Lookup[], string]>([
    ['main', [key('agent:work:main'), id('main')], "the current agent's main session"],
    ['agent:home:main', [key('agent:home:main')], 'a full key names its agent'],
    ['notes', [key('agent:work:notes'), id('notes')], 'a bare key belongs to the current agent, and is tried before an id'],
    ['telegram:group:-5', [key('agent:work:telegram:group:-5')], 'a request key belongs to the current agent'],
    ['cron:daily', [key('agent:work:cron:daily')], 'so does the short form of a job'],
    ['telegram:dm:5', [key('agent:work:telegram:direct:5')], '`dm` is read as `direct`'],
    [' Notes ', [key('agent:work:notes'), id('Notes')], 'keys are lower case; an id stays as it was written'],
    ['6f1c-AB', [key('agent:work:6f1c-ab'), id('6f1c-AB')], 'a session id may also be the name of a session'],
    ['direct', [id('direct')], 'a word that is no key can still be an id'],
  ])('looks for %j as %j: %s', (session, expected) => {
    expect(lookups({ session })).toEqual(expected);
  });

  it('reaches the shared session of scope "global" as the main session of the agent that owns it', () => {
    expect(lookups({ session: 'main' }, 'home', shared)).toEqual([key('agent:home:main'), id('main')]);
    expect(lookups({ session: 'agent:home:main' }, 'work', shared)).toEqual([key('agent:home:main')]);
    expect(lookups({ session: 'main' }, 'work', shared)).toEqual([key('agent:work:main'), id('main')]);
  });

  it.each<[Reference, string, string]>([
    [{}, 'INVALID_REQUEST', 'neither'],
    [{ session: ' ', label: '' }, 'INVALID_REQUEST', 'blank is neither'],
    [{ session: 'main', label: 'Notes' }, 'INVALID_REQUEST', 'both'],
    [{ session: 'main', agentId: 'home' }, 'INVALID_REQUEST', 'agentId goes with label only'],
    [{ label: 'Notes', agentId: 'not an id' }, 'INVALID_REQUEST', 'an agent id is not repaired'],
    [{ session: 'global' }, 'SESSION_KEY_RESERVED', 'reserved'],
    [{ session: ' Global ' }, 'SESSION_KEY_RESERVED', 'reserved in any case'],
    [{ session: 'unknown' }, 'SESSION_KEY_RESERVED', 'reserved'],
    [{ session: 'agent:work:global' }, 'SESSION_KEY_RESERVED', 'reserved under an agent too'],
    [{ session: 'agent:work:unknown' }, 'SESSION_KEY_RESERVED', 'reserved under an agent too'],
    [{ session: 'agent:no agent:main' }, 'SESSION_KEY_INVALID', 'not an agent id'],
    [{ session: 'agent:work:' }, 'SESSION_KEY_INVALID', 'a key without a name'],
    [{ session: 'cron:' }, 'SESSION_KEY_INVALID', 'a job without an id'],
  ])('refuses %j with %s: %s', (reference, code) => {
    expect(lookups(reference)).toBe(code);
    expect(lookups(reference, 'home', shared)).toBe(code);
  });

  it('takes a label as it is, narrowed by an agent id if there is one', () => {
    expect(lookups({ label: ' Release: Notes ' })).toEqual([{ by: 'label', label: 'Release: Notes', agentId: undefined }]);
    expect(lookups({ label: 'main', agentId: 'Home' })).toEqual([{ by: 'label', label: 'main', agentId: 'home' }]);
  });

  it('never takes the text of a session for a label, and tries a key before an id', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: fc.constantFrom('agent', 'work', 'global', 'main', 'cron', 'thread', 'Notes', ':', '%', ' '), maxLength: 8 }),
        (session) => {
          const planned = planReference({ session }, 'work', agents);
          const order = planned.ok ? planned.plan.lookups.map(({ by }) => by).join(' then ') : 'refused';
          expect(['key', 'id', 'key then id', 'refused']).toContain(order);
        },
      ),
    );
  });
});

describe('references of operators', () => {
  const planned = (reference: Reference) => planReference(reference, 'work', agents, operatorReferences);

  it.each<[Reference, Lookup[], string]>([
    [{ session: 'notes' }, [key('agent:work:notes'), id('notes')], 'a bare key belongs to the agent of the caller'],
    [{ session: 'notes', agentId: 'Home' }, [key('agent:home:notes'), id('notes')], 'agentId says whose bare key it is'],
    [{ session: 'agent:home:main' }, [key('agent:home:main'), id('agent:home:main')], 'an id may have colons'],
    [{ session: ' notes' }, [key('agent:work:notes'), id(' notes')], 'an id is not trimmed'],
    [{ session: 'global' }, [id('global')], 'no word is reserved'],
    [{ shortId: '6f1c' }, [{ by: 'shortId', shortId: '6f1c' }], 'how an id begins'],
    [{ label: 'Notes', agentId: 'Home' }, [{ by: 'label', label: 'Notes', agentId: 'home' }], 'a label, narrowed'],
  ])('%j is looked for as %j: %s', (reference, expected) => {
    expect(planned(reference)).toMatchObject({ ok: true, plan: { lookups: expected } });
  });

  it('says why a text is no key only if it is no session id, either', () => {
    const answer = planned({ session: 'agent:work:' });
    if (!answer.ok) throw new Error(answer.error);
    const row = { key: 'agent:work:x', agent: 'work' };
    expect(settleReference(answer.plan, [[row]], [], operatorReferences)).toEqual({ ok: true, session: row });
    expect(settleReference(answer.plan, [[]], [], operatorReferences)).toMatchObject({ ok: false, code: 'SESSION_KEY_INVALID' });
  });

  it('passes on what is similar', () => {
    const answer = planned({ session: 'nots' });
    if (!answer.ok) throw new Error(answer.error);
    expect(settleReference(answer.plan, [[], []], ['agent:work:notes'], operatorReferences)).toMatchObject({
      code: 'SESSION_NOT_FOUND',
      error: expect.stringContaining('agent:work:notes'),
    });
  });
});

describe('settleReference', () => {
  const plan = { written: 'notes', lookups: [key('agent:work:notes'), id('notes')] };
  const [byKey, byId] = [
    { key: 'agent:work:notes', agent: 'work' },
    { key: 'agent:work:main', agent: 'work' },
  ];

  it('takes the session with that key before the one with that id', () => {
    expect(settleReference(plan, [[byKey], [byId]], [])).toEqual({ ok: true, session: byKey });
    expect(settleReference(plan, [[], [byId]], [])).toEqual({ ok: true, session: byId });
  });

  it('refuses a label that several sessions have, and names the agents to choose from', () => {
    const labelled = { written: 'Notes', lookups: [{ by: 'label' as const, label: 'Notes', agentId: undefined }] };
    const found = [['work', 'home'].map((agent) => ({ key: `agent:${agent}:notes`, agent }))];
    expect(settleReference(labelled, found, [])).toEqual({
      ok: false,
      code: 'SESSION_AMBIGUOUS',
      error: 'session "Notes" matches 2 sessions; add agentId (one of: home, work)',
    });
  });

  it('answers a miss with what it was given to suggest', () => {
    const typo = { written: 'agent:work:notse', lookups: [key('agent:work:notse')] };
    const answer = settleReference(typo, [[]], ['agent:work:notes']);
    expect(answer).toMatchObject({
      ok: false,
      code: 'SESSION_NOT_FOUND',
      error: expect.stringContaining('did you mean "agent:work:notes"?'),
    });
    expect(settleReference(typo, [[]], [])).toMatchObject({ error: expect.stringContaining('see sessions_list') });
  });
});

describe('a hidden session', () => {
  const world = compileWorld(configOf('{ tools: { sessions: { visibility: "agent" } } }'));
  const facts = (key: string, more: Partial<SessionFacts> = {}): SessionFacts => ({ key, taint: 'PUBLIC', existTaint: 'PUBLIC', ...more });
  const caller = partyOf(world, facts('agent:work:main'));
  const visible = { facts: facts('agent:work:notes'), id: 'id-1', label: 'Notes' };

  function answer(reference: Reference, rows: (typeof visible)[]) {
    const planned = planReference(reference, 'work', world.agents);
    if (!planned.ok) return planned;
    const seen = rows
      .map((row) => ({ ...row, key: row.facts.key, agent: row.facts.key.split(':')[1]! }))
      .filter((row) => decide({ action: 'list', caller, target: partyOf(world, row.facts) }, world).effect === 'ALLOW');
    const value = { key: 'key', id: 'id', label: 'label', shortId: 'id' } as const;
    const found = planned.plan.lookups.map((lookup) => seen.filter((row) => row[value[lookup.by]] === Object.values(lookup)[1]));
    return settleReference(
      planned.plan,
      found,
      seen.map((row) => row.key),
    );
  }

  it.each([
    ['of another agent', facts('agent:home:notes')],
    ['with a higher taint', facts('agent:work:notes2', { taint: 'RESTRICTED' })],
    ['whose existence is secret', facts('agent:work:notes3', { existTaint: 'INTERNAL' })],
  ])('%s is answered like a missing one, by key, by id and by label', (_, hiddenFacts) => {
    const hidden = { facts: hiddenFacts, id: 'id-2', label: 'Secret' };
    for (const reference of [{ session: hiddenFacts.key }, { session: 'id-2' }, { label: 'Secret' }]) {
      const missing = answer(reference, [visible]);
      expect(missing).toMatchObject({ ok: false, code: 'SESSION_NOT_FOUND' });
      expect(answer(reference, [hidden, visible])).toEqual(missing);
    }
  });

  it('does not make the label of a visible one ambiguous', () => {
    const hidden = { facts: facts('agent:home:notes'), id: 'id-2', label: 'Notes' };
    expect(answer({ label: 'Notes' }, [hidden, visible])).toMatchObject({ ok: true, session: { key: 'agent:work:notes' } });
  });
});
