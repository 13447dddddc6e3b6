// The engine: the kernel's API for the rest of the gateway. Its parts keep lanes moving, sweep due rows, and resolve pending waits.
import { sleep } from '../clock.ts';
import { InterlaneError } from '../errors.ts';
import type { RunView } from '../protocol/run.ts';
import type { SessionRow } from '../store/rows.ts';
import { accept, type Accepted, type AcceptArgs } from './accept.ts';
import { joinStore } from './member.ts';
import { answerOffer, giveBack, takeOffer, type Answered, type Inbox } from './offers.ts';
import type { Operator } from './policy.ts';
import { moveDueTimes, setBackSince } from './rearm.ts';
import { abortRun, recoverRuns } from './runs.ts';
import { Scheduler, type SchedulerParts } from './scheduler.ts';
import { closeSession, ensureSession, resetSession, type NewSession, type Stopping } from './sessions.ts';
import { Sweeper, type SweeperParts } from './sweeper.ts';
import type { Answer } from './wait.ts';
import { WaitingRoom } from './waiting-room.ts';

export interface EngineParts extends SchedulerParts, Omit<SweeperParts, 'ready'> {
  newId(): string;
  host: { bootId: string; pid: number; name: string };
}

interface Main {
  key: string;
  made: Omit<NewSession, 'id'>;
}

const retryMs = 1_000;

export class Engine {
  private readonly parts: EngineParts;
  private readonly scheduler: Scheduler;
  private readonly sweeper: Sweeper;
  private readonly room: WaitingRoom;
  private readonly commands: ReturnType<typeof makeCommands>;
  private undoFollow: () => void = () => {};
  private readonly closing = new AbortController();

  constructor(parts: EngineParts) {
    this.parts = parts;
    this.commands = makeCommands(parts);
    this.scheduler = new Scheduler(parts);
    this.sweeper = new Sweeper({ ...parts, ready: () => this.scheduler.pump() });
    this.room = new WaitingRoom(parts);
  }

  get caps() {
    return this.parts.caps;
  }

  /** Whether no work is left that could progress without a timer or an answer from outside. */
  get idle(): boolean {
    return this.scheduler.idle;
  }

  /** The caller has the lock of the state directory, so every run that is still "running" belongs to a dead gateway. */
  async start(mains: Main[]): Promise<number> {
    const { store, clock, host } = this.parts;
    const owner = await store.write(joinStore, { ...host, now: clock.now() }, { urgent: true });
    const setBack = await store.read(setBackSince, { now: clock.now() });
    if (setBack !== 0) await this.clockJumped(setBack);
    while ((await store.write(this.commands.recover, { owner, now: clock.now() }, { urgent: true })) > 0);
    await this.openMains(mains);
    this.undoFollow = store.follow((events) => {
      this.room.published(events);
      this.scheduler.published(events);
      this.sweeper.published(events);
      for (const event of events)
        if (event.kind === 'exchange' && event.state === 'failed')
          this.parts.warn(`exchange ${event.exchangeId} failed and was ended: ${event.reason ?? 'no reason given'}`, {
            session: event.sessionKey,
            exchange: event.exchangeId,
          });
    });
    this.scheduler.start(owner);
    this.sweeper.start();
    return owner;
  }

  /** The wall clock was set or the machine slept: whatever waits keeps the time it had left. */
  async clockJumped(byMs: number): Promise<void> {
    const { store, clock, warn } = this.parts;
    const how = byMs < 0 ? 'was set back' : 'was set forward, or the machine slept,';
    warn(`clock ${how} by ${Math.round(Math.abs(byMs) / 1_000)} s; due times move along`);
    for (;;) {
      try {
        return await store.write(this.commands.moveDueTimes, { byMs, now: clock.now() }, { urgent: true });
      } catch (thrown) {
        if (!(thrown instanceof InterlaneError && thrown.code === 'STORE_FAILED')) throw thrown;
        await sleep(clock, retryMs, this.closing.signal);
      }
    }
  }

  /** Every configured agent's main session exists, so that it can be addressed from the first day. */
  async openMains(mains: Main[]): Promise<void> {
    const { store, clock, newId } = this.parts;
    for (const { key, made } of mains) await store.write(ensureSession, { key, made: { ...made, id: newId() }, now: clock.now() });
  }

  async close(graceMs: number): Promise<void> {
    this.closing.abort(new InterlaneError('STORE_FAILED', 'due times were not moved: the gateway is stopping'));
    this.sweeper.close();
    await this.scheduler.close(graceMs);
    this.room.close();
    this.undoFollow();
  }

  async accept(args: AcceptArgs): Promise<Accepted> {
    const accepted = await this.stopAfter(
      this.parts.store.write(this.commands.accept, args, { bytes: args.input.text.length, by: args.input.principal }),
    );
    if (args.input.notBefore !== undefined) this.sweeper.sweep();
    return accepted;
  }

  abort(runId: string, reason: string, operator?: Operator): Promise<{ aborted: boolean; stopping: number[] }> {
    const { store, clock } = this.parts;
    return this.stopAfter(store.write(this.commands.abort, { runId, reason, now: clock.now(), operator }, { urgent: true }));
  }

  reset(key: string, operator?: Operator): Promise<Stopping & { session: SessionRow }> {
    const { store, newId, clock } = this.parts;
    return this.stopAfter(store.write(this.commands.reset, { key, id: newId(), now: clock.now(), operator }));
  }

  closeSession(key: string, to: 'archived' | 'deleted', force: boolean, operator?: Operator): Promise<Stopping> {
    const { store, clock } = this.parts;
    return this.stopAfter(store.write(this.commands.closeSession, { key, to, force, now: clock.now(), operator }));
  }

  /** For a guest: the turn that waits for it, if any, and the turns it took that have ended in the meantime. */
  async look(lane: string, options: { again: boolean; replyMs: number }): Promise<Inbox> {
    const look = await this.parts.store.write(takeOffer, { lane, ...options, now: this.parts.clock.now() }, { urgent: true });
    if (look.turn) this.sweeper.sweep(); // its deadline may be the next one
    return look;
  }

  /** Returns a turn whose response never reached the guest. */
  giveBack(lane: string, turnId: string): Promise<void> {
    return this.parts.store.write(giveBack, { lane, turnId, now: this.parts.clock.now() }, { urgent: true });
  }

  /** A guest's answer ends its turn. */
  answer(lane: string, turnId: string, text: string): Promise<Answered> {
    const args = { lane, turnId, text, now: this.parts.clock.now() };
    return this.parts.store.write(this.commands.answerOffer, args, { urgent: true, bytes: text.length });
  }

  wait(runId: string, timeoutMs: number, signal?: AbortSignal): Promise<RunView> {
    return this.room.wait(runId, timeoutMs, signal);
  }

  reply(runId: string, waiterPk: number, timeoutMs: number, signal: AbortSignal): Promise<{ value: Answer; taint: number }> {
    return this.room.reply(runId, waiterPk, timeoutMs, signal);
  }

  private async stopAfter<R extends { stopping: number[]; more?: boolean }>(written: Promise<R>): Promise<R> {
    const result = await written;
    if (result.more) this.sweeper.sweep();
    this.scheduler.stop(result.stopping);
    return result;
  }
}

function makeCommands({ current }: EngineParts) {
  return {
    accept: accept(current),
    abort: abortRun(current),
    recover: recoverRuns(current),
    moveDueTimes: moveDueTimes(current),
    reset: resetSession(current),
    closeSession: closeSession(current),
    answerOffer: answerOffer(current),
  };
}
