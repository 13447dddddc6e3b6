// The exchange reducer: who speaks next, what stops the loop, when it is announced. Every exchange ends.
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { advanceExchange, announceSkip, isTelling, replySkip, type ExchangeState, type ExchangeStep, type TurnEnd } from './exchange.ts';

type Asked = Partial<ExchangeState> & Partial<TurnEnd>;
type Shown = { next: 'turn'; turn: number; side: 'requester' | 'target' } | { next: 'announce' | 'deliver' | 'end' };

/** What the reducer does, without its words. */
function next(asked: Asked): Shown {
  const { phase = 'request', turn = 0, maxTurns = 5, canReplyBack = true, ok = true, reply = 'hello', mayFlow = true } = asked;
  const step = advanceExchange({ phase, turn, maxTurns, canReplyBack }, { ok, reply, mayFlow });
  return step.next === 'turn' ? step : { next: step.next };
}

const requester = (turn: number): Shown => ({ next: 'turn', turn, side: 'requester' });
const target = (turn: number): Shown => ({ next: 'turn', turn, side: 'target' });
const announce: Shown = { next: 'announce' };
const deliver: Shown = { next: 'deliver' };
const end: Shown = { next: 'end' };

describe('the words an agent can say to stop', () => {
  it('are REPLY_SKIP and ANNOUNCE_SKIP', () => {
    expect([replySkip, announceSkip]).toEqual(['REPLY_SKIP', 'ANNOUNCE_SKIP']);
  });
});

describe('after the first run', () => {
  it.each<[Asked, Shown, string]>([
    [{}, requester(1), 'the requester speaks first, with the first reply'],
    [{ ok: false }, end, 'a failed first run has no loop and no announce'],
    [{ ok: false, reply: '' }, end, 'nor one that failed without a word'],
    [{ reply: '' }, end, 'an empty first run has no loop and no announce'],
    [{ reply: ' \n\t ' }, end, 'blank is empty'],
    [{ reply: '', canReplyBack: false }, end, 'also when there is nobody to reply back to'],
    [{ ok: false, canReplyBack: false }, end, 'nor is a failure announced then'],
    [{ canReplyBack: false }, announce, 'without another session to reply back to it is announced at once'],
    [{ canReplyBack: false, mayFlow: false }, announce, 'and policy on the way back has nothing to say'],
    [{ maxTurns: 0 }, announce, 'no turns are allowed'],
    [{ mayFlow: false }, announce, 'policy stops the reply, not the announce'],
    [{ reply: 'REPLY_SKIP' }, announce, 'the target ends the loop before it starts'],
    [{ reply: '\n REPLY_SKIP \n' }, announce, 'space around the word does not count'],
    [{ reply: 'REPLY_SKIP', maxTurns: 0 }, announce, 'both reasons lead to the same'],
    [{ reply: 'reply_skip' }, requester(1), 'the word is written in capitals'],
    [{ reply: 'REPLY_SKIP.' }, requester(1), 'more than the word is an answer'],
    [{ reply: 'I say REPLY_SKIP' }, requester(1), 'the word inside a sentence is a sentence'],
    [{ reply: 'REPLY_SKIP REPLY_SKIP' }, requester(1), 'twice is not exactly'],
    [{ reply: 'REPLY SKIP' }, requester(1), 'another spelling is an answer'],
    [{ reply: 'ANNOUNCE_SKIP' }, requester(1), 'the other word means nothing here'],
  ])('%j → %j: %s', (asked, expected) => {
    expect(next(asked)).toEqual(expected);
  });
});

describe('after a reply-back turn', () => {
  it.each<[Asked, Shown, string]>([
    [{ turn: 1 }, target(2), 'the target answers the requester'],
    [{ turn: 2 }, requester(3), 'then the requester again'],
    [{ turn: 4 }, requester(5), 'up to the last turn'],
    [{ turn: 5 }, announce, 'five turns are all there are'],
    [{ turn: 1, maxTurns: 1 }, announce, 'one turn is one turn'],
    [{ turn: 3, maxTurns: 2 }, announce, 'past the limit it stops too'],
    [{ turn: 1, reply: 'REPLY_SKIP' }, announce, 'the requester has enough'],
    [{ turn: 2, reply: ' REPLY_SKIP\n' }, announce, 'the target has enough'],
    [{ turn: 2, reply: 'ANNOUNCE_SKIP' }, requester(3), 'the other word means nothing here'],
    [{ turn: 1, reply: '' }, announce, 'silence ends the loop'],
    [{ turn: 1, reply: '  ' }, announce, 'blank is silence'],
    [{ turn: 1, ok: false }, announce, 'a failure ends the loop, and what there is gets announced'],
    [{ turn: 1, ok: false, reply: 'half a sentence' }, announce, 'whatever it had said'],
    [{ turn: 1, mayFlow: false }, announce, 'policy is asked for every turn'],
  ])('%j → %j: %s', (asked, expected) => {
    expect(next({ phase: 'reply', ...asked })).toEqual(expected);
  });
});

describe('after the announce turn', () => {
  it.each<[Asked, Shown, string]>([
    [{}, deliver, 'what it says goes to the channel'],
    [{ mayFlow: false }, deliver, 'the way back is no longer asked about'],
    [{ canReplyBack: false }, deliver, 'with or without a requester'],
    [{ reply: 'ANNOUNCE_SKIP' }, end, 'it chose silence'],
    [{ reply: '\tANNOUNCE_SKIP\n' }, end, 'space around the word does not count'],
    [{ reply: '' }, end, 'it said nothing'],
    [{ reply: '\n\n' }, end, 'blank is nothing'],
    [{ ok: false }, end, 'it failed'],
    [{ reply: 'ANNOUNCE_SKIP!' }, deliver, 'more than the word is an announce'],
    [{ reply: 'announce_skip' }, deliver, 'the word is written in capitals'],
    [{ reply: 'REPLY_SKIP' }, deliver, 'the other word means nothing here'],
  ])('%j → %j: %s', (asked, expected) => {
    expect(next({ phase: 'announce', turn: 6, ...asked })).toEqual(expected);
  });
});

describe('the latest reply worth telling', () => {
  it.each<[string, boolean, string]>([
    ['soup', true, 'an answer'],
    ['REPLY_SKIP', false, 'a skip'],
    [' REPLY_SKIP ', false, 'a skip with space around it'],
    ['', false, 'nothing'],
    [' \n', false, 'blank'],
    ['ANNOUNCE_SKIP', true, 'a word that means nothing in the loop'],
    ['REPLY_SKIP?', true, 'more than the word'],
  ])('%j: %j, %s', (reply, expected) => {
    expect(isTelling(reply)).toBe(expected);
  });
});

// Properties: any exchange, played to its end -------------------------------------------------------------------------

const ending = fc.record({
  ok: fc.boolean(),
  reply: fc.oneof(fc.constantFrom('', ' ', replySkip, ` ${replySkip}\n`, announceSkip, 'yes'), fc.string()),
  mayFlow: fc.boolean(),
});
/** Mostly what goes on, so that long exchanges are seen as well. */
const talkative = fc.oneof(
  { weight: 3, arbitrary: fc.constant({ ok: true, reply: 'go on', mayFlow: true }) },
  { weight: 1, arbitrary: ending },
);
const exchange = fc.record({
  maxTurns: fc.integer({ min: 0, max: 5 }),
  canReplyBack: fc.boolean(),
  ends: fc.array(talkative, { minLength: 8, maxLength: 8 }),
});

interface Played {
  turns: ('requester' | 'target')[];
  announced: boolean;
  delivered: boolean;
  last: ExchangeStep;
}

/** Plays the ends of the runs in order, as the engine would. */
function play({ maxTurns, canReplyBack, ends }: { maxTurns: number; canReplyBack: boolean; ends: TurnEnd[] }): Played {
  const state: ExchangeState = { phase: 'request', turn: 0, maxTurns, canReplyBack };
  const played: Omit<Played, 'last'> = { turns: [], announced: false, delivered: false };
  for (const one of ends) {
    const step = advanceExchange(state, one);
    switch (step.next) {
      case 'turn':
        played.turns.push(step.side);
        Object.assign(state, { phase: 'reply', turn: step.turn });
        break;
      case 'announce':
        expect(played.announced).toBe(false);
        played.announced = true;
        Object.assign(state, { phase: 'announce', turn: maxTurns + 1 });
        break;
      case 'deliver':
      case 'end':
        return { ...played, delivered: step.next === 'deliver', last: step };
    }
  }
  throw new Error('the exchange did not end');
}

describe('every exchange', () => {
  it('ends: at most the first run, maxTurns turns and one announce', () => {
    fc.assert(
      fc.property(exchange, (asked) => {
        const { turns } = play(asked);
        expect(turns.length).toBeLessThanOrEqual(asked.maxTurns);
      }),
    );
  });

  it('alternates, the requester first', () => {
    fc.assert(
      fc.property(exchange, (asked) => {
        const { turns } = play(asked);
        expect(turns).toEqual(turns.map((_, index) => (index % 2 === 0 ? 'requester' : 'target')));
      }),
    );
  });

  it('delivers only what an announce turn said, and never a skip or blank text', () => {
    fc.assert(
      fc.property(exchange, (asked) => {
        const { turns, announced, delivered } = play(asked);
        if (!delivered) return;
        expect(announced).toBe(true);
        const said = asked.ends[turns.length + 1]!;
        expect(said.ok && said.reply.trim() !== '' && said.reply.trim() !== announceSkip).toBe(true);
      }),
    );
  });

  it('is announced unless the first run failed or was empty', () => {
    fc.assert(
      fc.property(exchange, (asked) => {
        const first = asked.ends[0]!;
        const { turns, announced } = play(asked);
        expect(announced).toBe(first.ok && first.reply.trim() !== '');
        if (!announced) expect(turns).toEqual([]);
      }),
    );
  });

  it('takes all its turns when nothing stops it, and none when there is nobody to reply back to', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 5 }), fc.boolean(), fc.string(), (maxTurns, canReplyBack, text) => {
        const reply = `said: ${text}`;
        const ends = Array.from({ length: 8 }, () => ({ ok: true, reply, mayFlow: true }));
        expect(play({ maxTurns, canReplyBack, ends }).turns).toHaveLength(canReplyBack ? maxTurns : 0);
      }),
    );
  });

  it('stops its loop at the first failure, blank, skip or refusal', () => {
    fc.assert(
      fc.property(exchange, (asked) => {
        const { turns } = play(asked);
        const goesOn = ({ ok, reply, mayFlow }: TurnEnd) => ok && mayFlow && isTelling(reply);
        const stop = asked.ends.findIndex((one) => !goesOn(one));
        const most = asked.canReplyBack ? asked.maxTurns : 0;
        expect(turns).toHaveLength(Math.min(most, stop < 0 ? most : stop));
      }),
    );
  });

  it('says why it stops', () => {
    fc.assert(
      fc.property(exchange, (asked) => {
        const { last } = play(asked);
        expect(last.next === 'end' ? last.why : 'delivered').toMatch(/\S/);
      }),
    );
  });
});
