// The outside client and the schemas that were published for this protocol.
import { readFileSync } from 'node:fs';
import { GatewayClient, type GatewayClientOptions } from '@openclaw/gateway-client';
import { onTestFinished } from 'vitest';
import { z } from 'zod';
import type { OperationName, Params, Results } from '../../src/protocol/operations/all.ts';

export class Published {
  readonly client: GatewayClient;
  readonly events: { event: string; seq: number | undefined; payload: Record<string, unknown> }[] = [];
  readonly gaps: object[] = [];
  readonly hellos: Record<string, unknown>[] = [];
  readonly closes: { code: number; reason: string }[] = [];
  readonly paused: { code: number; detailCode: string | null }[] = [];
  private readonly watchers = new Set<() => void>();

  constructor(port: number, token: string | undefined, more: GatewayClientOptions = {}) {
    const note =
      <T>(list: T[]) =>
      (one: T) => {
        list.push(one);
        for (const watcher of this.watchers) watcher();
      };
    const event = note(this.events);
    const close = note(this.closes);
    this.client = new GatewayClient({
      url: `ws://127.0.0.1:${port}`,
      ...(token === undefined ? {} : { token }),
      onEvent: ({ event: name, seq, payload }) => event({ event: name, seq, payload: payload as Record<string, unknown> }),
      onHelloOk: note(this.hellos),
      onGap: note(this.gaps),
      onClose: (code, reason) => close({ code, reason }),
      onReconnectPaused: note(this.paused),
      hostDeps: { logDebug() {}, logError() {} },
      ...more,
    });
    onTestFinished(() => this.client.stopAndWait());
    this.client.start();
  }

  static async connect(port: number, token: string, more: GatewayClientOptions = {}): Promise<Published> {
    const published = new Published(port, token, more);
    await published.until(() => published.hellos.length > 0);
    return published;
  }

  until(holds: () => boolean): Promise<void> {
    return new Promise((resolve) => {
      const look = () => {
        if (!holds()) return;
        this.watchers.delete(look);
        resolve();
      };
      this.watchers.add(look);
      look();
    });
  }

  call<M extends OperationName>(method: M, params?: Params<M>, options?: Parameters<GatewayClient['request']>[2]): Promise<Results[M]> {
    return this.client.request<Results[M]>(method, params ?? {}, options);
  }

  payloads(name: string): Record<string, unknown>[] {
    return this.events.filter(({ event }) => event === name).map(({ payload }) => payload);
  }
}

// The published schemas -----------------------------------------------------------------------------------------------

const definitions = (
  JSON.parse(readFileSync('node_modules/@openclaw/gateway-protocol/protocol.schema.json', 'utf8')) as {
    definitions: Record<string, object>;
  }
).definitions;

/** A published definition that tolerates more fields than it names: that is how this protocol grows. */
export function published(name: string): z.ZodType {
  return z.fromJSONSchema(opened(definitions[name]!) as z.core.JSONSchema.JSONSchema);
}

function opened(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(opened);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).filter(([key, inner]) => !(key === 'additionalProperties' && inner === false));
  return Object.fromEntries(entries.map(([key, inner]) => [key, opened(inner)]));
}
