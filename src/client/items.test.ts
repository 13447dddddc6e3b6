// The list of a conversation under live events and messages in every order that can happen.
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { WaitAnswer, WireMessage } from '../protocol/result.ts';
import type { AgentEvent, ChatEvent } from '../protocol/wire-event.ts';
import { Items, type Item } from './items.ts';

const of = { sessionKey: 'agent:main:main', agentId: 'main' };
const delta = (runId: string, offset: number, deltaText: string, step = 1): ChatEvent => ({
  ...of,
  runId,
  seq: 0,
  state: 'delta',
  step,
  attempt: 1,
  offset,
  deltaText,
});
const soFar = (runId: string, text: string, step = 1) => ({ ...delta(runId, 0, text, step), replace: true }) as ChatEvent;
const stopped = (runId: string, seq: number): ChatEvent => ({ ...of, runId, seq, state: 'aborted' });
const whole = (runId: string, text: string): AgentEvent => ({ ...of, runId, seq: 0, ts: 0, stream: 'assistant', data: { text } });
const tool = (runId: string, id: string): AgentEvent => ({
  ...of,
  runId,
  seq: 0,
  ts: 0,
  stream: 'tool',
  data: { phase: 'start', toolCallId: id, name: 'look', args: {} },
});
const ended = (runId: string, state: WaitAnswer['state']): WaitAnswer => ({ runId, state, status: 'error', sessionKey: of.sessionKey });

let seq = 0;
function message(runId: string, role: WireMessage['role'], text: string, more: Partial<WireMessage> = {}): WireMessage {
  return {
    role,
    content: role === 'user' ? text : [{ type: 'text', text }],
    timestamp: 0,
    entry: { id: `m${++seq}`, seq, runId },
    ...more,
  };
}
const calling = (runId: string, text: string, id: string) =>
  message(runId, 'assistant', '', {
    content: [
      { type: 'text', text },
      { type: 'toolCall', id, name: 'look', arguments: {} },
    ],
  });

const shape = (items: readonly Item[]) =>
  items.map((item) => `${item.kind} ${'text' in item ? item.text : 'name' in item ? item.name : ''}`.trim());

describe('the list', () => {
  it('keeps the id of a text that was live when it becomes a message', () => {
    const items = new Items(new Set(['r']));
    items.chat(delta('r', 0, 'one '));
    const [live] = items.list;
    expect(live).toMatchObject({ kind: 'answer', own: true, state: 'live', text: 'one ' });
    items.chat(delta('r', 4, 'two'));
    items.agent(whole('r', 'one two'));
    expect(items.list).toMatchObject([{ id: live!.id, state: 'whole', text: 'one two' }]);
    const kept = message('r', 'assistant', 'one two');
    items.message(kept);
    expect(items.list).toMatchObject([{ id: live!.id, state: 'kept', text: 'one two', message: kept }]);
  });

  it('is the same array until something changes', () => {
    const items = new Items(new Set(['r']));
    items.chat(delta('r', 0, 'one'));
    const before = items.list;
    expect(items.list).toBe(before);
    items.chat(delta('r', 3, ' two'));
    expect(items.list).not.toBe(before);
    expect(before).toMatchObject([{ text: 'one' }]);
  });

  it('has a call and its result in their places, each with what the verbose level says', () => {
    const items = new Items(new Set(['r']));
    items.agent(whole('r', 'see'));
    items.agent(tool('r', '0'));
    items.message(calling('r', 'see', '0'));
    items.message(message('r', 'toolResult', 'found', { toolCallId: '0', toolName: 'look' }));
    items.verbose('off');
    items.message(calling('r', 'again', '1'));
    items.verbose('full');
    items.message(message('r', 'toolResult', 'found', { toolCallId: '1', toolName: 'look' }));
    expect(shape(items.list)).toEqual(['answer see', 'call look', 'result found', 'answer again', 'call look', 'result found']);
    expect(items.list.map((item) => 'quiet' in item && item.quiet)).toEqual([false, false, true, false, true, false]);
  });

  it('keeps what a stopped run had said, and its message completes it', () => {
    const items = new Items(new Set());
    items.message(message('r', 'user', 'why?'));
    items.chat(delta('r', 0, 'be'));
    items.chat(stopped('r', 2));
    expect(items.list).toMatchObject([
      { kind: 'message', own: false },
      { state: 'cut', text: 'be' },
      { kind: 'end', state: 'aborted' },
    ]);
    const [, cut] = items.list;
    items.message(message('r', 'assistant', 'beca', { stopReason: 'aborted' }));
    expect(items.list.filter(({ kind }) => kind === 'answer')).toMatchObject([{ id: cut!.id, state: 'kept', text: 'beca' }]);
  });

  it('waits with a call for the text before it, when part of that was missed', () => {
    const items = new Items(new Set(['r']));
    items.chat(delta('r', 0, 'le'));
    items.chat(delta('r', 7, 'see'));
    items.agent(tool('r', '0'));
    expect(shape(items.list)).toEqual(['answer le']);
    items.message(calling('r', 'let me see', '0'));
    expect(shape(items.list)).toEqual(['answer let me see', 'call look']);
  });

  it('continues a text whose middle was missed when the text so far comes', () => {
    const items = new Items(new Set(['r']));
    items.chat(delta('r', 0, 'le'));
    const [live] = items.list;
    items.lost();
    items.current();
    items.chat(soFar('r', 'let me'));
    items.chat(delta('r', 6, ' see'));
    expect(items.list).toMatchObject([{ id: live!.id, state: 'live', text: 'let me see' }]);
  });

  it('takes the text so far of a later step for another text', () => {
    const items = new Items(new Set(['r']));
    items.chat(delta('r', 0, 'le'));
    items.lost();
    items.chat(soFar('r', 'found', 2));
    items.message(calling('r', 'let me see', '0'));
    items.message(message('r', 'toolResult', 'it', { toolCallId: '0', toolName: 'look' }));
    items.current();
    expect(shape(items.list)).toEqual(['answer let me see', 'call look', 'result it', 'answer found']);
  });

  it('settles own runs when they end', () => {
    const items = new Items(new Set(['r']));
    items.message(message('r', 'user', 'why?'));
    items.chat(delta('r', 0, 'be'));
    items.ended(ended('r', 'error'));
    expect(items.list).toMatchObject([
      { kind: 'message', own: true },
      { state: 'cut', text: 'be' },
      { kind: 'end', own: true, state: 'error' },
    ]);
  });

  it('lets go of a text whose message never comes, once a later run speaks', () => {
    const items = new Items(new Set());
    items.message(message('r', 'user', 'why?'));
    items.chat(delta('r', 0, 'be'));
    items.lost();
    items.current();
    items.message(message('s', 'user', 'and?'));
    items.chat(delta('s', 0, 'so'));
    expect(shape(items.list)).toEqual(['message why?', 'answer be', 'message and?', 'answer so']);
  });

  it('is the transcript in the end, and on the way nothing that is kept moves and no id comes twice', () => {
    const step = fc.stringMatching(/^[a-c]{1,4}$/);
    fc.assert(
      fc.property(
        fc.array(fc.record({ own: fc.boolean(), steps: fc.array(step, { minLength: 1, maxLength: 4 }) }), { minLength: 1, maxLength: 4 }),
        fc.array(fc.nat(3), { maxLength: 60 }),
        fc.option(fc.tuple(fc.nat(30), fc.nat(30)), { nil: undefined }),
        (runs, lags, outage) => {
          const items = new Items(new Set(runs.flatMap(({ own }, index) => (own ? [`r${index}`] : []))));
          const waiting: WireMessage[] = [];
          const transcript: string[] = [];
          let settled: string[] = [];
          let listed: string[] = [];
          let at = 0;
          let missed = Infinity;
          const back = () => outage !== undefined && at === outage[0] + outage[1];
          const look = () => {
            const ids = items.list.map(({ id }) => id);
            expect(new Set(ids).size).toBe(ids.length);
            const kept = items.list.filter((item) => !('state' in item) || item.state === 'kept').map(({ id }) => id);
            expect(kept.slice(0, settled.length)).toEqual(settled);
            expect(ids.slice(0, kept.length)).toEqual(kept);
            settled = kept;
            // Only a lost connection takes back what was listed.
            if (!outage) expect(listed.filter((id) => !ids.includes(id))).toEqual([]);
            listed = ids;
          };
          const tick = (live: () => void, kept?: WireMessage) => {
            const [from, length] = outage ?? [Infinity, 0];
            const away = at >= from && at < from + length;
            if (at === from) items.lost();
            if (at === from + length) missed = waiting.length;
            if (!away) live();
            if (kept) waiting.push(kept);
            // Messages come later than live events, never in another order.
            for (let many = away ? 0 : (lags[at] ?? 9); many > 0 && waiting.length > 0; many--, missed--) items.message(waiting.shift()!);
            if (missed <= 0) items.current();
            look();
            at++;
          };
          for (const [index, { steps }] of runs.entries()) {
            const runId = `r${index}`;
            tick(() => {}, message(runId, 'user', `Q${index}`));
            transcript.push(`message Q${index}`);
            for (const [before, text] of steps.entries()) {
              for (const [offset, piece] of text.split('').entries()) {
                const event = delta(runId, offset, piece, before + 1);
                // Who comes back in the middle gets the text so far.
                const late = soFar(runId, text.slice(0, offset), before + 1);
                tick(() => {
                  if (back() && offset > 0) items.chat(late);
                  items.chat(event);
                });
              }
              tick(() => items.agent(whole(runId, text)), message(runId, 'assistant', text));
              transcript.push(`answer ${text}`);
            }
            const end: ChatEvent = { ...of, runId, seq: 0, state: 'final' };
            tick(() => items.chat(end));
          }
          for (const one of waiting) items.message(one);
          items.current();
          look();
          expect(shape(items.list)).toEqual(transcript);
        },
      ),
      { numRuns: 500 },
    );
  });
});
