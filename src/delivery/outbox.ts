// The outbox: pending → sending (committed before the first byte) → sent, failed, unknown or dead. First in, first out per destination.
import type { Channel } from '../channels/channel.ts';
import { untilAborted } from '../engine/abort.ts';
import type { Clock } from '../engine/engine.ts';
import { noteDelivery, type EngineCommand } from '../engine/feed.ts';
import { passOut } from '../engine/policy.ts';
import { reasonOf } from '../errors.ts';
import type { FeedEvent } from '../protocol/event.ts';
import type { World } from '../rules/decide.ts';
import type { ReadQuery, Store } from '../store/contract.ts';
import type { DeliveryRow, SessionRow } from '../store/rows.ts';

export interface OutboxParts {
  store: Store<FeedEvent>;
  clock: Clock;
  world: World;
  channels: Map<string, Channel>;
  warn(message: string): void;
}

const atOnce = 16;
const firstRetryMs = 1_000;
const longestRetryMs = 5 * 60_000;
/** A head that cannot be sent lets those behind it pass after this long. */
const giveUpMs = 10 * 60_000;
const longestSleepMs = 5_000;
const graceMs = 5_000;

export class Outbox {
  private readonly parts: OutboxParts;
  private readonly flying = new Set<Promise<void>>();
  private readonly controller = new AbortController();
  private running = false;
  private looking: Promise<void> | undefined;
  private lookAgain = false;
  private undoCommit = () => {};
  private cancelTimer = () => {};

  constructor(parts: OutboxParts) {
    this.parts = parts;
  }

  /** What was being sent when the last gateway died is unknown, and says so; it is not sent again in silence. */
  async start(): Promise<void> {
    const { store, clock } = this.parts;
    while ((await store.write(orphanSending, { now: clock.now() }, { urgent: true })) > 0);
    this.undoCommit = store.onCommit((events) => {
      if (events.some((event) => event.kind === 'delivery' && event.state === 'pending')) this.look();
    });
    this.running = true;
    this.look();
  }

  async close(): Promise<void> {
    this.running = false;
    this.undoCommit();
    this.cancelTimer();
    await this.looking;
    // Whether a message that is cut off here arrived is not known, and is said so.
    const cancel = this.parts.clock.after(graceMs, () => this.controller.abort(new Error('the gateway stopped while this was being sent')));
    await Promise.all(this.flying);
    cancel();
  }

  private look(): void {
    if (!this.running) return;
    if (this.looking) {
      this.lookAgain = true;
      return;
    }
    this.looking = this.take()
      .catch((thrown: unknown) => {
        if (!this.running) return;
        this.parts.warn(`deliveries could not be taken: ${reasonOf(thrown)}`);
        this.cancelTimer = this.parts.clock.after(firstRetryMs, () => this.look());
      })
      .finally(() => {
        this.looking = undefined;
        if (!this.lookAgain) return;
        this.lookAgain = false;
        this.look();
      });
  }

  private async take(): Promise<void> {
    const { store, clock, world } = this.parts;
    const free = atOnce - this.flying.size;
    if (free <= 0) return;
    const taken = await store.write(beginSending(world), { now: clock.now(), limit: free }, { urgent: true });
    for (const delivery of taken) {
      const flight = this.send(delivery).finally(() => {
        this.flying.delete(flight);
        this.look();
      });
      this.flying.add(flight);
    }
    const next = await store.read(nextPending, {});
    if (!this.running || next === undefined) return;
    this.cancelTimer();
    this.cancelTimer = clock.after(Math.min(Math.max(next - clock.now(), 50), longestSleepMs), () => this.look());
  }

  private async send(delivery: DeliveryRow): Promise<void> {
    const { store, clock, channels } = this.parts;
    const channel = channels.get(delivery.channel);
    const settle = (state: DeliveryRow['state'], more: { error?: string; platformId?: string; dueAt?: number } = {}) =>
      store.write(settleDelivery, { pk: delivery.pk, attempts: delivery.attempts, state, ...more, now: clock.now() }, { urgent: true });
    try {
      if (!channel) {
        await settle('failed', { error: `channel "${delivery.channel}" is not connected` });
        return;
      }
      const { id, recipient, text } = delivery;
      const sending = channel.send(
        {
          id,
          recipient,
          text,
          ...(delivery.account === null ? {} : { account: delivery.account }),
          ...(delivery.thread === null ? {} : { thread: delivery.thread }),
        },
        this.controller.signal,
      );
      const result = await untilAborted(this.controller.signal, sending);
      if (result.outcome === 'sent') await settle('sent', result.platformId === undefined ? {} : { platformId: result.platformId });
      else if (result.outcome === 'refused') await settle('failed', { error: result.error });
      else if (result.outcome === 'unknown') await settle('unknown', { error: result.error });
      else if (clock.now() - delivery.first_at > giveUpMs)
        await settle('dead', { error: `given up after ${delivery.attempts} attempts: ${result.error}` });
      else
        await settle('pending', {
          error: result.error,
          dueAt: clock.now() + Math.min(result.afterMs ?? firstRetryMs * 2 ** (delivery.attempts - 1), longestRetryMs),
        });
    } catch (thrown) {
      await settle('unknown', { error: reasonOf(thrown) }).catch((failed: unknown) =>
        this.parts.warn(`delivery ${delivery.id} could not be settled: ${reasonOf(failed)}`),
      );
    }
  }
}

/** Takes heads of destinations that are due. Policy is asked again here: it may have changed since the text was queued. */
function beginSending(world: World): EngineCommand<{ now: number; limit: number }, DeliveryRow[]> {
  return {
    name: 'begin sending',
    *body(t, { now, limit }) {
      const due = yield* t.all<DeliveryRow>(
        `SELECT * FROM deliveries AS d WHERE state = 'pending' AND due_at <= ?
         AND NOT EXISTS (SELECT 1 FROM deliveries AS e WHERE e.dest_key = d.dest_key AND e.state IN ('pending', 'sending') AND e.pk < d.pk)
         ORDER BY due_at LIMIT ?`,
        now,
        limit,
      );
      const taken: DeliveryRow[] = [];
      for (const delivery of due) {
        const session = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', delivery.session_pk))!;
        const { decision, text } = passOut(world, { ...session, taint: delivery.taint }, delivery.channel, delivery.text);
        if (text === undefined) {
          yield* t.run(`UPDATE deliveries SET state = 'dead', error = ? WHERE pk = ?`, decision.why, delivery.pk);
          yield* noteDelivery(t, session, delivery, 'dead', now, decision.why);
          continue;
        }
        const attempts = delivery.attempts + 1;
        // Time without an attempt (a stop, a head before it) does not count towards giving up.
        const firstAt = delivery.attempts === 0 ? now : delivery.first_at;
        yield* t.run(
          `UPDATE deliveries SET state = 'sending', attempts = ?, text = ?, first_at = ? WHERE pk = ?`,
          attempts,
          text,
          firstAt,
          delivery.pk,
        );
        taken.push({ ...delivery, state: 'sending', attempts, text, first_at: firstAt });
      }
      return taken;
    },
  };
}

interface Settled {
  pk: number;
  attempts: number;
  state: DeliveryRow['state'];
  error?: string;
  platformId?: string;
  dueAt?: number;
  now: number;
}

const settleDelivery: EngineCommand<Settled, void> = {
  name: 'settle delivery',
  *body(t, { pk, attempts, state, error, platformId, dueAt, now }) {
    const delivery = yield* t.one<DeliveryRow>(
      `SELECT * FROM deliveries WHERE pk = ? AND state = 'sending' AND attempts = ?`,
      pk,
      attempts,
    );
    if (!delivery) return;
    const session = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', delivery.session_pk))!;
    yield* t.run(
      'UPDATE deliveries SET state = ?, error = ?, platform_id = ?, due_at = ? WHERE pk = ?',
      state,
      error ?? null,
      platformId ?? null,
      dueAt ?? delivery.due_at,
      pk,
    );
    yield* noteDelivery(t, session, delivery, state === 'pending' ? 'retrying' : state, now, error);
  },
};

const orphanSending: EngineCommand<{ now: number }, number> = {
  name: 'orphan sending',
  *body(t, { now }) {
    const orphans = yield* t.all<DeliveryRow>(`SELECT * FROM deliveries WHERE state = 'sending' LIMIT 50`);
    for (const delivery of orphans) {
      const session = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', delivery.session_pk))!;
      const error = 'the gateway stopped while this was being sent; whether it arrived is not known';
      yield* t.run(`UPDATE deliveries SET state = 'unknown', error = ? WHERE pk = ?`, error, delivery.pk);
      yield* noteDelivery(t, session, delivery, 'unknown', now, error);
    }
    return orphans.length;
  },
};

const nextPending: ReadQuery<object, number | undefined> = {
  name: 'next pending',
  *body(t) {
    return (yield* t.one<{ due_at: number }>(`SELECT due_at FROM deliveries WHERE state = 'pending' ORDER BY due_at LIMIT 1`))?.due_at;
  },
};
