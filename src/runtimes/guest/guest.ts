// A guest: an outside harness that takes the turns of a session itself. Turn → offer → inbox → reply → the turn's end.
import { z } from 'zod';
import type { Engine } from '../../engine/engine.ts';
import type { Inbox, OfferedTurn } from '../../engine/offers.ts';
import type { Runner } from '../../engine/runner.ts';
import type { Store } from '../../store/contract.ts';
import { contextText, guestNext, guestTurnStopped, quote, senderName } from '../../wording.ts';
import { defineTool, type Tool, type ToolContext, type ToolOutcome } from '../../tools/define.ts';

export interface GuestParts {
  store: Store;
  engine: Engine;
  now(): number;
  after(ms: number, work: () => void): () => void;
  /** How long a guest has for a turn before the turn is offered again. */
  replyMs(): number;
}

/** Most harnesses give up on a tool call after 30 or 60 seconds. */
const usualWaitSeconds = 25;
const longestWaitSeconds = 50;
/** A guest works between two calls of inbox; it counts as online for this long. */
const awayAfterMs = 60_000;

/** The turn waits as a row, without a slot, until a guest has answered it. */
export const guestRunner: Runner = {
  async run(turn) {
    if (await turn.offer()) return 'parked';
    await turn.end({ text: '', usage: { input: 0, output: 0 } });
    return 'ended';
  },
};

export class Guests {
  private readonly parts: GuestParts;
  /** The guests that wait or waited in inbox, by session key. Lost with the process, like the connections themselves. */
  private readonly seen = new Map<string, { looking: number; at: number }>();
  private readonly waiting = new Map<string, Set<() => void>>();
  private readonly undo: () => void;

  constructor(parts: GuestParts) {
    this.parts = parts;
    this.undo = parts.store.follow((events) => {
      for (const event of events) if (event.kind === 'run') for (const wake of this.waiting.get(event.sessionKey) ?? []) wake();
    });
  }

  close(): void {
    this.undo();
  }

  online(sessionKey: string): boolean {
    const seen = this.seen.get(sessionKey);
    return seen !== undefined && (seen.looking > 0 || this.parts.now() - seen.at < awayAfterMs);
  }

  /** The tools that only guests have. */
  readonly tools: Tool[] = [
    defineTool({
      name: 'inbox',
      description:
        'Wait for the next message to your session. Answer it with reply, then call inbox again. If there is nothing yet, call inbox again.',
      effect: 'keyed',
      params: z.strictObject({
        waitSeconds: z.number().min(0).optional().describe(`seconds to wait (default ${usualWaitSeconds}, at most ${longestWaitSeconds})`),
        again: z.boolean().optional().describe('true: return again the message you took and have not answered, if you lost it'),
      }),
      run: (context, args) => this.inbox(context, args),
    }),
    defineTool({
      name: 'reply',
      description: 'Answer a message from inbox. The text goes to its sender.',
      effect: 'keyed',
      params: z.strictObject({
        turnId: z.string().min(1).max(512).describe('turnId from inbox'),
        text: z.string().max(1_000_000).describe('the answer; empty for none'),
      }),
      run: async ({ engine, session }, { turnId, text }) => {
        const { repeated } = await engine.answer(session.key, turnId, text);
        return { value: { status: 'ok', ...(repeated ? { repeated } : {}), next: guestNext.replied } };
      },
    }),
  ];

  private async inbox(context: ToolContext, args: { waitSeconds?: number | undefined; again?: boolean | undefined }): Promise<ToolOutcome> {
    const { key } = context.session;
    const waitMs = Math.min(args.waitSeconds ?? usualWaitSeconds, longestWaitSeconds) * 1_000;
    const seen = this.seen.get(key) ?? { looking: 0, at: 0 };
    this.seen.set(key, seen);
    seen.looking++;
    try {
      return await this.look(context, waitMs, args.again === true);
    } finally {
      seen.looking--;
      seen.at = this.parts.now();
    }
  }

  private async look({ session, signal }: ToolContext, waitMs: number, again: boolean): Promise<ToolOutcome> {
    const { engine } = this.parts;
    const replyMs = this.parts.replyMs();
    let over = waitMs <= 0;
    let retake = again;
    let wake = () => {};
    const cancel = this.parts.after(waitMs, () => {
      over = true;
      wake();
    });
    const stop = () => wake();
    signal.addEventListener('abort', stop, { once: true });
    const undo = this.listen(session.key, () => wake());
    try {
      for (;;) {
        // Listens before it looks, so that it does not miss a turn in between.
        const woken = new Promise<void>((resolve) => (wake = resolve));
        signal.throwIfAborted();
        const look = await engine.look(session.key, { again: retake, replyMs });
        retake = false; // a turn that another client takes in the meantime belongs to that client
        if (signal.aborted && look.turn) await engine.giveBack(session.key, look.turn.turnId);
        signal.throwIfAborted();
        if (look.turn || look.stopped.length > 0 || over) return { value: inboxResult(look), taint: look.taint };
        await woken;
      }
    } finally {
      undo();
      cancel();
      signal.removeEventListener('abort', stop);
    }
  }

  private listen(key: string, wake: () => void): () => void {
    const set = this.waiting.get(key) ?? new Set();
    this.waiting.set(key, set.add(wake));
    return () => {
      set.delete(wake);
      if (set.size === 0) this.waiting.delete(key);
    };
  }
}

/** The result of inbox. */
function inboxResult({ turn, open, stopped }: Inbox): Record<string, unknown> {
  const ended = stopped.length > 0 ? { stopped: stopped.map(({ turnId, why }) => ({ turnId, why: guestTurnStopped(why) })) } : {};
  if (turn) {
    const { turnId, attempt, replyBefore, messages, queued } = turn;
    return {
      status: 'message',
      turnId,
      messages: messages.map(guestMessage),
      queued,
      ...(attempt > 1 ? { attempt } : {}),
      replyBefore: new Date(replyBefore).toISOString(),
      next: guestNext.message,
      ...ended,
    };
  }
  if (open) {
    return {
      status: 'unanswered',
      turnId: open.turnId,
      offeredAgainAt: new Date(open.replyBefore).toISOString(),
      next: guestNext.unanswered,
      ...ended,
    };
  }
  return { status: 'nothing yet', next: guestNext.nothing, ...ended };
}

function guestMessage({ provenance, text, context }: OfferedTurn['messages'][number]): { from: string; text: string; note?: string } {
  const from = senderName(provenance);
  const said = { from, text: quote(text) };
  if (context === undefined) return said;
  return { ...said, note: typeof context === 'string' ? quote(context) : contextText(context) };
}
