// Live events and messages in every order that can happen → each text is printed once, in the order of the transcript.
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Items } from '../client/items.ts';
import type { AgentEvent, ChatEvent, SessionMessage } from '../protocol/wire-event.ts';
import { Printer } from './paper.ts';

let messages = 0;
const of = { sessionKey: 'agent:main:main', agentId: 'main' };
const delta = (offset: number, deltaText: string, step = 1, runId = 'r') =>
  ({ ...of, runId, seq: 0, state: 'delta', step, attempt: 1, offset, deltaText }) as ChatEvent;
const replace = (text: string, step = 1, runId = 'r') => ({ ...delta(0, text, step, runId), replace: true }) as ChatEvent;
const made = (text: string, runId = 'r') => ({ ...of, runId, seq: 0, ts: 0, stream: 'assistant', data: { text } }) as AgentEvent;
const tool = (id: string, runId = 'r') =>
  ({ ...of, runId, seq: 0, ts: 0, stream: 'tool', data: { phase: 'start', toolCallId: id, name: 'look', args: {} } }) as AgentEvent;
const message = (role: 'user' | 'assistant', text: string, runId = 'r', calls: string[] = []) =>
  ({
    ...of,
    runId,
    message: {
      role,
      content:
        role === 'user' ? text : [{ type: 'text', text }, ...calls.map((id) => ({ type: 'toolCall', id, name: 'look', arguments: {} }))],
      timestamp: 0,
      entry: { id: `m${++messages}`, seq: 0, runId },
    },
  }) as unknown as SessionMessage;
const result = (id: string, text: string) => {
  const role = { role: 'toolResult', content: text, toolCallId: id, toolName: 'look' };
  return {
    ...of,
    runId: 'r',
    message: { ...role, timestamp: 0, entry: { id: `m${++messages}`, seq: 0, runId: 'r' } },
  } as unknown as SessionMessage;
};

function paper(own = ['r'], streams = true) {
  let text = '';
  const items = new Items(new Set(own));
  const printer = new Printer(
    {
      piece: (piece) => void (text += piece),
      end: () => void (text += text === '' || text.endsWith('\n') ? '' : '\n'),
      lines: (lines, kind, from) =>
        void (text += `${text === '' || text.endsWith('\n') ? '' : '\n'}${kind === 'note' ? `(${lines})` : `${from === undefined ? '' : `${from}: `}${lines}`}\n`),
    },
    streams,
  );
  const then = (change: () => void) => {
    change();
    printer.print(items.list);
  };
  const answers = {
    chat: (event: ChatEvent) => then(() => items.chat(event)),
    agent: (event: AgentEvent) => then(() => items.agent(event)),
    message: (event: SessionMessage) => then(() => items.message(event.message)),
    verbose: (level: string | undefined) => then(() => items.verbose(level)),
    lost() {
      then(() => items.lost());
      printer.note('lost');
    },
    current: () => then(() => items.current()),
  };
  return { answers, text: () => text };
}

describe('answers', () => {
  it('that a rule withheld from their chat have one note about it', () => {
    const { answers, text } = paper();
    const withheld = message('assistant', 'pin 4711');
    answers.message({ ...withheld, message: { ...withheld.message, withheld: true } });
    answers.message(message('assistant', 'fine', 's'));
    expect(text()).toBe('pin 4711\n(this answer was not delivered: a rule withheld it)\nfine\n');
  });

  it('stream, and are not repeated by their message', () => {
    const { answers, text } = paper();
    answers.chat(delta(0, 'one '));
    expect(text()).toBe('one ');
    answers.chat(delta(4, 'two'));
    answers.agent(made('one two'));
    answers.message(message('assistant', 'one two'));
    expect(text()).toBe('one two\n');
  });

  it('stream on while the message of the step before is on its way', () => {
    const { answers, text } = paper();
    answers.chat(delta(0, 'first'));
    answers.agent(made('first'));
    answers.agent(tool('c'));
    answers.chat(delta(0, 'sec', 2));
    answers.message(message('assistant', 'first', 'r', ['c']));
    answers.chat(delta(3, 'ond', 2));
    answers.agent(made('second'));
    answers.message(message('assistant', 'second'));
    expect(text()).toBe('first\n→ look {}\nsecond\n');
  });

  it('say the same twice when it was said twice', () => {
    const { answers, text } = paper();
    for (const step of [1, 2]) {
      answers.chat(delta(0, 'yes', step));
      answers.agent(made('yes'));
    }
    answers.message(message('assistant', 'yes'));
    answers.message(message('assistant', 'yes'));
    answers.message(message('assistant', 'yes'));
    expect(text()).toBe('yes\nyes\nyes\n');
  });

  it('that start over say so', () => {
    const { answers, text } = paper();
    answers.chat(delta(0, 'wrong'));
    answers.chat(replace(''));
    answers.chat(delta(0, 'right'));
    answers.agent(made('right'));
    answers.message(message('assistant', 'right'));
    expect(text()).toBe('wrong\n(the answer starts over)\nright\n');
  });

  it('that were changed at the end are shown as they are kept', () => {
    const { answers, text } = paper();
    answers.chat(delta(0, 'the secret'));
    answers.agent(made('the [withheld]'));
    answers.message(message('assistant', 'the [withheld]'));
    expect(text()).toBe('the secret\n(the answer was changed to)\nthe [withheld]\n');
  });

  it('that were cut off go on where they were', () => {
    const { answers, text } = paper();
    answers.chat(delta(0, 'one '));
    answers.lost();
    answers.chat(delta(14, 'four'));
    answers.agent(made('one two three four'));
    answers.message(message('assistant', 'one two three four'));
    answers.chat(delta(0, 'five', 2));
    expect(text()).toBe('one \n(lost)\n…two three four\n');
    answers.current();
    expect(text()).toBe('one \n(lost)\n…two three four\nfive');
  });

  it('of a run that was joined in the middle wait until they are whole', () => {
    const { answers, text } = paper([]);
    answers.message(message('user', 'why?'));
    answers.chat(delta(3, 'le'));
    expect(text()).toBe('elsewhere: why?\n');
    answers.agent(made('whole'));
    answers.message(message('assistant', 'whole'));
    expect(text()).toBe('elsewhere: why?\nwhole\n');
  });

  it('of a run that was joined in the middle begin with the text so far', () => {
    const { answers, text } = paper([]);
    answers.message(message('user', 'why?'));
    answers.chat(replace('who'));
    answers.chat(delta(3, 'le'));
    expect(text()).toBe('elsewhere: why?\nwhole');
    answers.agent(made('whole'));
    answers.message(message('assistant', 'whole'));
    expect(text()).toBe('elsewhere: why?\nwhole\n');
  });

  it('to others wait for their question', () => {
    const { answers, text } = paper([]);
    answers.chat(delta(0, 'because'));
    expect(text()).toBe('');
    answers.message(message('user', 'why?'));
    expect(text()).toBe('elsewhere: why?\nbecause');
  });

  it('show each call once, also when its id was used in a run before', () => {
    const { answers, text } = paper(['r', 's']);
    for (const runId of ['r', 's']) {
      answers.agent(tool('0', runId));
      answers.message(message('assistant', '', runId, ['0', '1']));
    }
    expect(text()).toBe('→ look {}\n'.repeat(4));
  });

  it.each([
    ['off', 'see\ndone\n'],
    [undefined, 'see\n→ look {}\ndone\n'],
    ['on', 'see\n→ look {}\ndone\n'],
    ['full', 'see\n→ look {}\n← look found\ndone\n'],
  ])('with verbose level %s tell as much of tools, each in its place', (level, expected) => {
    const { answers, text } = paper();
    answers.verbose(level);
    answers.chat(delta(0, 'see'));
    answers.agent(made('see'));
    answers.agent(tool('0'));
    answers.chat(delta(0, 'do', 2));
    answers.message(message('assistant', 'see', 'r', ['0']));
    answers.message(result('0', 'found'));
    answers.chat(delta(2, 'ne', 2));
    answers.agent(made('done'));
    answers.message(message('assistant', 'done'));
    expect(text()).toBe(expected);
  });

  it('in a pipe are whole', () => {
    const { answers, text } = paper(['r'], false);
    answers.chat(delta(0, 'on'));
    answers.agent(made('one'));
    expect(text()).toBe('');
    answers.message(message('assistant', 'one'));
    expect(text()).toBe('one\n');
  });

  it('in a pipe are the last words of own runs; all else is beside them', () => {
    const { answers, text } = paper(['r'], false);
    answers.message(message('assistant', 'on the way', 'r', ['0']));
    answers.message(message('assistant', 'to others', 'other'));
    answers.message(message('assistant', 'the answer'));
    expect(text()).toBe('(on the way)\n→ look {}\n(to others)\nthe answer\n');
  });

  it.each([true, false])('tell of a summary in one line (on a terminal: %s)', (streams) => {
    const { answers, text } = paper(['r'], streams);
    const summary = message('user', 'Ana said this.\nThen that.');
    summary.message.summary = true;
    answers.message(summary);
    expect(text()).toBe('(older messages were summarized)\n');
  });

  it('are each shown once and in order, however events are late or lost', () => {
    const step = fc.stringMatching(/^[a-c]{1,4}$/);
    fc.assert(
      fc.property(
        fc.array(fc.record({ own: fc.boolean(), steps: fc.uniqueArray(step, { minLength: 1, maxLength: 4 }) }), {
          minLength: 1,
          maxLength: 4,
        }),
        fc.array(fc.nat(3), { maxLength: 60 }),
        fc.option(fc.tuple(fc.nat(30), fc.nat(30)), { nil: undefined }),
        fc.boolean(),
        (runs, lags, outage, soFar) => {
          const own = runs.flatMap(({ own }, index) => (own ? [`r${index}`] : []));
          const { answers, text } = paper(own);
          const waiting: SessionMessage[] = [];
          let at = 0;
          let missed = Infinity;
          const back = () => outage !== undefined && at === outage[0] + outage[1];
          const tick = (live: () => void, kept?: SessionMessage) => {
            const [from, length] = outage ?? [Infinity, 0];
            const away = at >= from && at < from + length;
            if (at === from) answers.lost();
            if (at === from + length) missed = waiting.length;
            if (!away) live();
            if (kept) waiting.push(kept);
            // Messages come later than what is live, never in another order.
            for (let many = away ? 0 : (lags[at] ?? 9); many > 0 && waiting.length > 0; many--, missed--) answers.message(waiting.shift()!);
            if (missed <= 0) answers.current();
            at++;
          };
          for (const [index, { steps }] of runs.entries()) {
            const runId = `r${index}`;
            tick(() => {}, message('user', `Q${index}`, runId));
            for (const [before, said] of steps.entries()) {
              for (const [offset, piece] of said.split('').entries()) {
                const event = delta(offset, piece, before + 1, runId);
                const late = replace(said.slice(0, offset), before + 1, runId);
                tick(() => {
                  if (soFar && back() && offset > 0) answers.chat(late);
                  answers.chat(event);
                });
              }
              tick(() => answers.agent(made(said, runId)), message('assistant', said, runId));
            }
            const end = { ...of, runId, seq: 0, state: 'final' } as ChatEvent;
            tick(() => answers.chat(end));
          }
          for (const one of waiting) answers.message(one);
          const shown = text().replaceAll('(lost)\n', '').replaceAll('\n…', '').replaceAll('\n', '|');
          const questionless = shown.replaceAll(/elsewhere: Q\d\|/g, '');
          expect(questionless).toBe(
            runs
              .flatMap(({ steps }) => steps)
              .map((said) => `${said}|`)
              .join(''),
          );
        },
      ),
      { numRuns: 2_000 },
    );
  });
});
