// A gateway on a real file whose time stands still until a test moves it, and whose rows a test can look at.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import type { z } from 'zod';
import type { Clock } from '../../src/clock.ts';
import { loopbackTo } from '../../src/channels/loopback/loopback.ts';
import { Config } from '../../src/config/schema.ts';
import { startGateway, type Gateway, type GatewayOptions } from '../../src/gateway.ts';
import type { FeedEvent } from '../../src/protocol/event.ts';
import { Script } from '../../src/runtimes/scripted/scripted.ts';
import type { Value } from '../../src/store/contract.ts';

class MovedClock implements Clock {
  time = 1_800_000_000_000;
  private readonly timers = new Set<{ at: number; work: () => void }>();
  now() {
    return this.time;
  }
  elapsed() {
    return this.time;
  }
  after(ms: number, work: () => void) {
    const timer = { at: this.time + ms, work };
    this.timers.add(timer);
    return () => void this.timers.delete(timer);
  }
  /** Everything that sleeps until then wakes in its order. */
  advance(ms: number) {
    const until = this.time + ms;
    for (;;) {
      const [next] = [...this.timers].filter((timer) => timer.at <= until).toSorted((a, b) => a.at - b.at);
      if (!next) break;
      this.timers.delete(next);
      this.time = Math.max(this.time, next.at);
      next.work();
    }
    this.time = until;
  }
  /** How many sleep, and how long the next to wake still does. */
  asleep(): { count: number; nextMs: number } {
    return { count: this.timers.size, nextMs: Math.min(...[...this.timers].map((timer) => timer.at - this.time)) };
  }
}

type More = Partial<Omit<GatewayOptions, 'clock' | 'script'>> & {
  config?: z.input<typeof Config>;
  script?: z.input<typeof Script>;
  clock?: MovedClock;
};

export interface ByHand {
  gateway: Gateway;
  clock: MovedClock;
  stateDir: string;
  warned: string[];
  say(peer: string, text: string, more?: { mode?: 'collect' | 'steer' | 'followup' | 'interrupt' }): Promise<string>;
  rows<T>(sql: string, ...params: Value[]): Promise<T[]>;
  sql(sql: string, ...params: Value[]): Promise<void>;
  /** Looks again and again, without time passing, until it holds. */
  until(holds: () => Promise<boolean> | boolean): Promise<void>;
  /** The same while time passes, a second at each look. */
  inTime(holds: () => Promise<boolean> | boolean): Promise<void>;
  close(): Promise<void>;
}

const tick = () => new Promise<void>((resolve) => setImmediate(resolve));

export async function startByHand(more: More = {}): Promise<ByHand> {
  const { config = {}, script, clock = new MovedClock(), stateDir = mkdtempSync(join(tmpdir(), 'interlane-hand-')), ...options } = more;
  const warned: string[] = [];
  const gateway = await startGateway(Config.parse({ session: { dmScope: 'per-peer' }, ...config }), {
    stateDir,
    clock,
    script: Script.parse(script ?? [{ steps: [{ say: 're: {{input}}' }] }]),
    channels: [loopbackTo(() => {})],
    warn: (message) => void warned.push(message),
    ...options,
  });
  const over = { closed: false };
  const close = async () => {
    const closing = gateway.close().finally(() => (over.closed = true));
    // What the gateway gives to work under way passes at once; no more than that does.
    for (let seconds = 0; !over.closed; seconds++) {
      if (seconds < 10) clock.advance(1_000);
      await tick();
    }
    await closing;
  };
  onTestFinished(async () => {
    await close();
    rmSync(stateDir, { recursive: true, force: true });
  });
  return {
    gateway,
    clock,
    stateDir,
    warned,
    say: async (peer, text, { mode } = {}) => {
      const origin = { channel: 'loopback', peer: { kind: 'direct' as const, id: peer } };
      return (await gateway.receive({ origin, text, ...(mode === undefined ? {} : { mode }) })).runId;
    },
    rows: <T>(sql: string, ...params: Value[]) => gateway.store.read({ name: 'test', body: (t) => t.all<T>(sql, ...params) }, {}),
    sql: async (sql, ...params) => void (await gateway.store.write({ name: 'test', body: (t) => t.run(sql, ...params) }, {})),
    async until(holds) {
      while (!(await holds())) await tick();
    },
    async inTime(holds) {
      while (!(await holds())) {
        clock.advance(1_000);
        await tick();
      }
    },
    close,
  };
}

/** What a subscriber hears, from the beginning of the feed or from now on. */
export function listen(gateway: Gateway, cursor?: number): { events: FeedEvent[]; resets(): number; failures: unknown[] } {
  const events: FeedEvent[] = [];
  const failures: unknown[] = [];
  let resets = 0;
  const undo = gateway.bus.subscribe(
    {
      wants: () => true,
      deliver: (event) => void events.push(event),
      reset: () => void resets++,
      failed: (error) => void failures.push(error),
    },
    cursor,
  );
  onTestFinished(undo);
  return { events, failures, resets: () => resets };
}
