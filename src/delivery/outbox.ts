// The outbox: pending → sending (committed before the first byte) → sent, failed, unknown or dead. First in, first out per destination.
import type { Clock } from '../clock.ts';
import type { Current } from '../engine/flow.ts';
import type { Channel } from '../channels/channel.ts';
import { untilAborted } from '../abort.ts';
import { reasonOf } from '../errors.ts';
import { searchOf } from '../rules/hooks.ts';
import type { Store } from '../store/contract.ts';
import type { DeliveryRow } from '../store/rows.ts';
import { beginSending, doubtRestored, dueTexts, nextPending, orphanSending, settleDelivery, type Settlement } from './deliveries.ts';
import type { Report, Warn } from '../warn.ts';

export interface OutboxParts {
  store: Store;
  clock: Clock;
  current: Current;
  channels: Map<string, Channel>;
  warn: Warn;
  /** `what` is a sentence about a failure that no caller waits for. */
  failed: Report;
}

const atOnce = 16;
const firstRetryMs = 1_000;
const longestRetryMs = 5 * 60_000;
const shortestSleepMs = 50;
const longestSleepMs = 5_000;
/** The interval without work: a queued message wakes the outbox. */
const idleMs = 60_000;

export class Outbox {
  private readonly parts: OutboxParts;
  private readonly flying = new Set<Promise<void>>();
  private readonly controller = new AbortController();
  private member = 0;
  private running = false;
  private looking: Promise<void> | undefined;
  private lookAgain = false;
  private readonly begin: ReturnType<typeof beginSending>;
  private undoFollow = () => {};
  private cancelTimer = () => {};
  /** Callbacks that end the pauses before retries. */
  private readonly sleeping = new Set<() => void>();

  constructor(parts: OutboxParts) {
    this.parts = parts;
    this.begin = beginSending(parts.current);
  }

  /** After a restore: call this before anything makes a delivery, because all that is open counts as part of the backup. */
  async doubtRestored(): Promise<void> {
    const { store, clock, warn } = this.parts;
    let doubted = 0;
    for (let n = 1; n > 0; doubted += n) n = await store.write(doubtRestored, { now: clock.now() }, { urgent: true });
    if (doubted > 0)
      warn(`${doubted} deliveries were pending in the backup that was restored; their outcome is unknown, and they are not sent`);
  }

  /** Marks deliveries that the last gateway was sending when it died as unknown; they are not sent again automatically. */
  async start(member: number): Promise<void> {
    const { store, clock } = this.parts;
    this.member = member;
    while ((await store.write(orphanSending, { owner: member, now: clock.now() }, { urgent: true })) > 0);
    this.undoFollow = store.follow((events) => {
      if (events.some((event) => event.kind === 'delivery' && event.state === 'pending')) this.look();
    });
    this.running = true;
    this.look();
  }

  /** Deliveries in progress may finish during the grace period. */
  async close(graceMs: number): Promise<void> {
    this.running = false;
    for (const wake of this.sleeping) wake();
    this.undoFollow();
    this.cancelTimer();
    await this.looking;
    // A message that is cut off here may have arrived, so it is marked as unknown.
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
        this.parts.failed('deliveries could not be claimed', thrown);
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
    const { store, clock } = this.parts;
    const free = atOnce - this.flying.size;
    if (free <= 0) return;
    const args = { owner: this.member, now: clock.now(), limit: free };
    const hook = 'PRE_OUTPUT' as const;
    const searched = searchOf(this.parts.current().world.policy, hook) ? await store.read(dueTexts, args) : [];
    const texts = searched.map((text) => ({ hook, text }));
    const { taken, blocked } = await store.write({ ...this.begin, texts: () => texts }, args, { urgent: true });
    if (blocked) this.lookAgain = true;
    for (const delivery of taken) {
      const flight = this.send(delivery).finally(() => {
        this.flying.delete(flight);
        this.look();
      });
      this.flying.add(flight);
    }
    const next = await store.read(nextPending, {});
    if (!this.running) return;
    this.cancelTimer();
    const sleepMs = next === undefined ? idleMs : Math.min(Math.max(next - clock.now(), shortestSleepMs), longestSleepMs);
    this.cancelTimer = clock.after(sleepMs, () => this.look());
  }

  private async send(delivery: DeliveryRow): Promise<void> {
    const settled = await this.attempt(delivery).catch((thrown: unknown): Settlement => ({ state: 'unknown', error: reasonOf(thrown) }));
    await this.record(delivery, settled);
  }

  private async attempt(delivery: DeliveryRow): Promise<Settlement> {
    const { channels } = this.parts;
    const channel = channels.get(delivery.channel);
    if (!channel) return { state: 'failed', error: `channel "${delivery.channel}" is not connected` };
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
    switch (result.outcome) {
      case 'sent':
        return { state: 'sent', ...(result.platformId === undefined ? {} : { platformId: result.platformId }) };
      case 'refused':
        return { state: 'failed', error: result.error };
      case 'unknown':
        return { state: 'unknown', error: result.error };
      case 'retry': {
        const afterMs = Math.min(result.afterMs ?? firstRetryMs * 2 ** (delivery.attempts - 1), longestRetryMs);
        return { state: 'pending', error: result.error, afterMs };
      }
    }
  }

  /** Retries the write of the outcome, so that a disk that is full for a moment does not block a destination. */
  private async record(delivery: DeliveryRow, settled: Settlement): Promise<void> {
    const { store, clock, failed } = this.parts;
    for (let waitMs = firstRetryMs; ; waitMs = Math.min(waitMs * 2, longestSleepMs)) {
      try {
        const { pk, dest_key: destKey, attempts } = delivery;
        return await store.write(settleDelivery, { pk, destKey, attempts, ...settled, now: clock.now() }, { urgent: true });
      } catch (thrown) {
        const last = !this.running; // the next start finds it as unknown
        failed(`delivery ${delivery.id} could not be settled${last ? '' : ' yet'}`, thrown, { delivery: delivery.id });
        if (last) return;
        await new Promise<void>((resolve) => {
          const cancel = clock.after(waitMs, () => wake());
          const wake = () => {
            cancel();
            this.sleeping.delete(wake);
            resolve();
          };
          this.sleeping.add(wake);
        });
      }
    }
  }
}
