// The stage of a story: a gateway on a real file, with a clock, a scripted model, a log of what left, and ways to wait for what happens.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { z } from 'zod';
import type { Outbound } from '../../src/channels/channel.ts';
import { loopbackTo } from '../../src/channels/loopback/loopback.ts';
import { Config } from '../../src/config/schema.ts';
import { startGateway, type Gateway, type GatewayOptions } from '../../src/gateway.ts';
import type { FeedEvent } from '../../src/protocol/event.ts';
import { Script } from '../../src/runtimes/scripted/scripted.ts';
import type { InboundMessage } from '../../src/sessions/inbound.ts';
import type { Store, Value } from '../../src/store/contract.ts';
import { defineTool } from '../../src/tools/define.ts';
import type { HandClock, StageClock } from '../clock.ts';

export type ConfigText = z.input<typeof Config>;
export type ScriptText = z.input<typeof Script>;

export class Stage<C extends StageClock = HandClock> {
  readonly clock: C;
  readonly stateDir: string;
  /** What the model follows. It is kept by reference, so a test can write the next turn. */
  readonly script: Script = [];
  readonly sent: Outbound[] = [];
  readonly warnings: string[] = [];
  gateway!: Gateway;
  /** A second gateway on the same state leaves the directory to the first. */
  private readonly borrowed: boolean;

  constructor(clock: C, stateDir?: string) {
    this.clock = clock;
    this.borrowed = stateDir !== undefined;
    this.stateDir = stateDir ?? mkdtempSync(join(tmpdir(), 'interlane-story-'));
  }

  async start(config: ConfigText, script: ScriptText, more: Partial<GatewayOptions> = {}): Promise<this> {
    this.script.push(...Script.parse(script));
    this.gateway = await startGateway(Config.parse(config), {
      stateDir: this.stateDir,
      script: this.script,
      clock: this.clock,
      channels: [loopbackTo((message) => this.sent.push(message))],
      warn: (message) => this.warnings.push(message),
      search: false,
      ...more,
    });
    return this;
  }

  rows<T>(sql: string, ...params: Value[]): Promise<T[]> {
    return rowsOf<T>(this.gateway.store, sql, ...params);
  }

  /** The first event, from the beginning of the feed, that fits. */
  event(fits: (event: FeedEvent) => boolean): Promise<FeedEvent> {
    return eventOf(this.gateway, fits, 0);
  }

  /** Nothing is queued, running, waiting, open or undelivered any more. */
  settled(): Promise<void> {
    return this.none(
      `SELECT 1 FROM runs WHERE ended_at IS NULL UNION ALL SELECT 1 FROM exchanges WHERE end_reason IS NULL
       UNION ALL SELECT 1 FROM deliveries WHERE state IN ('pending', 'sending')`,
    );
  }

  /** Looks again at every event, until there is no such row. */
  async none(sql: string): Promise<void> {
    for (;;) {
      // Listening starts before looking, so that what happens in between is not missed.
      const heard = Promise.withResolvers<void>();
      const undo = this.gateway.bus.subscribe({ wants: () => true, deliver: () => heard.resolve(), reset() {}, failed: heard.reject });
      const open = (await this.rows(sql)).length > 0;
      if (open) await heard.promise;
      undo();
      if (!open) return;
    }
  }

  /** Stops it; live turns get no time to finish. */
  async close(): Promise<void> {
    this.clock.stopping = true;
    await (this.gateway as Gateway | undefined)?.close();
    this.clock.stopping = false;
  }

  async end(): Promise<void> {
    await this.close();
    if (!this.borrowed) rmSync(this.stateDir, { recursive: true, force: true });
  }
}

/** The stage is cleared when the test is over, however it ends. */
export function forTest<S extends Stage<StageClock>>(stage: S): S {
  onTestFinished(() => stage.end());
  return stage;
}

/** A person writes. */
export function say(gateway: Gateway, text: string, from = 'you', more: Partial<InboundMessage> = {}) {
  return gateway.receive({ origin: { channel: 'loopback', peer: { kind: 'direct', id: from } }, text, ...more });
}

/** The first event that fits, or the nth: of those to come, or of all after a position. */
export async function eventOf(gateway: Gateway, fits: (event: FeedEvent) => boolean, after?: number, nth = 1): Promise<FeedEvent> {
  const found = Promise.withResolvers<FeedEvent>();
  let left = nth;
  const deliver = (event: FeedEvent) => void (--left === 0 && found.resolve(event));
  const undo = gateway.bus.subscribe({ wants: fits, deliver, reset() {}, failed: found.reject }, after);
  return await found.promise.finally(undo);
}

export function rowsOf<T>(store: Store<FeedEvent>, sql: string, ...params: Value[]): Promise<T[]> {
  const query: Parameters<typeof store.read<object, T[]>>[0] = {
    name: 'test',
    *body(t) {
      return yield* t.all<T>(sql, ...params);
    },
  };
  return store.read(query, {});
}

/** A tool whose calls stop until the test lets them go, or until their turn is stopped. */
export function gates() {
  const made = new Map<string, { entered: PromiseWithResolvers<void>; open: PromiseWithResolvers<void> }>();
  const gate = (name: string) => {
    const found = made.get(name) ?? { entered: Promise.withResolvers<void>(), open: Promise.withResolvers<void>() };
    made.set(name, found);
    return found;
  };
  const tool = defineTool({
    name: 'gate',
    description: 'Wait until the test goes on.',
    effect: 'pure',
    params: z.strictObject({ name: z.string() }),
    async run({ signal }, { name }) {
      const stopped = Promise.withResolvers<never>();
      signal.addEventListener('abort', () => stopped.reject(signal.reason as Error));
      gate(name).entered.resolve();
      await Promise.race([gate(name).open.promise, stopped.promise]);
      return { value: 'open' };
    },
  });
  return { tool, entered: (name: string) => gate(name).entered.promise, open: (name: string) => gate(name).open.resolve() };
}
