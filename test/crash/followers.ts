// What followers of a gateway have seen, over websocket, event stream and MCP, and how it compares with what is stored.
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, type Client } from '../../src/client/client.ts';
import { follow } from '../../src/client/follow.ts';
import { ask, Listener } from '../harness/http.ts';

/** The numbers of the messages of each session, in the order they were seen. */
export type Seen = Map<string, number[]>;

export interface Following {
  seen: Seen;
  /** How many messages were seen in all. */
  count(): number;
  /** Resolves when so many were seen. */
  reached(count: number): Promise<void>;
  stop(): Promise<void>;
}

export const reach = (url: string, token: string, signal?: AbortSignal): Promise<Client> =>
  connect({ url, token, client: { id: 'crash', mode: 'test', version: '0', platform: 'test' }, ...(signal ? { signal } : {}) });

function noting(work: (note: (key: string, seq: number) => void, signal: AbortSignal) => Promise<void>): Following {
  const seen: Seen = new Map();
  const controller = new AbortController();
  let count = 0;
  let news = Promise.withResolvers<void>();
  const over = work((key, seq) => {
    count++;
    seen.set(key, [...(seen.get(key) ?? []), seq]);
    news.resolve();
    news = Promise.withResolvers();
  }, controller.signal);
  return {
    seen,
    count: () => count,
    reached: async (wanted) => {
      for (const enough = () => count >= wanted; !enough();) await news.promise;
    },
    stop: async () => {
      controller.abort();
      await over;
    },
  };
}

/** The product's own client, on all sessions. */
export const overWebsocket = (url: string, token: string, connected: () => void): Following =>
  noting((note, signal) =>
    follow({
      open: (stop) => reach(url, token, stop),
      signal,
      sleep: (_, stop) => sleep(20, undefined, { signal: stop }),
      message: ({ sessionKey, messageSeq }) => note(sessionKey, messageSeq),
      connected,
    }),
  );

/** A plain reader of one session's event stream, which comes back with the id of the last event. */
export const overEventStream = (url: string, token: string, key: string): Following =>
  noting(async (note, signal) => {
    let last: string | undefined;
    while (!signal.aborted) {
      try {
        const headers = {
          authorization: `Bearer ${token}`,
          accept: 'text/event-stream',
          ...(last === undefined ? {} : { 'last-event-id': last }),
        };
        const response = await fetch(`${url}/sessions/${encodeURIComponent(key)}/history?includeTools=true`, { headers, signal });
        if (response.status !== 200) throw new Error(`status ${response.status}`);
        const listener = new Listener(response, new AbortController());
        for (let heard = await listener.next(); heard; heard = await listener.next()) {
          if (heard.event === 'reset') throw new Error('a reader was told to start over');
          if (heard.event === 'history')
            for (const message of heard.data.messages as { __openclaw: { seq: number } }[]) note(key, message.__openclaw.seq);
          if (heard.event === 'message') note(key, heard.data.messageSeq as number);
          if (heard.id !== undefined) last = heard.id;
        }
      } catch (thrown) {
        if (thrown instanceof Error && thrown.message === 'a reader was told to start over') throw thrown;
      }
      await sleep(20);
    }
  });

/** A guest over MCP that forgets everything when its connection breaks. What it was told of each answer is kept. */
export function asGuest(url: string, token: string): { told: Map<string, string>; stop(): Promise<void> } {
  const told = new Map<string, string>();
  const stop = new AbortController();
  let id = 0;
  const call = async (name: string, args: object) => {
    const body = { jsonrpc: '2.0', id: ++id, method: 'tools/call', params: { name, arguments: args } };
    const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
    const { text } = await ask(`${url}/mcp`, {
      method: 'POST',
      token,
      headers,
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(30_000),
    });
    const json = text.startsWith('{') ? text : /^data: (\{.*)$/m.exec(text)?.[1];
    const { result } = JSON.parse(json ?? '') as { result: { content: { text: string }[]; isError?: boolean } };
    return JSON.parse(result.content[0]!.text) as Record<string, unknown>;
  };
  const work = async () => {
    while (!stop.signal.aborted) {
      try {
        const turn = await call('inbox', { waitSeconds: 1, again: true });
        if (turn['status'] !== 'message') continue;
        const turnId = String(turn['turnId']);
        const text = `So says the guest to ${turnId}.`;
        if ((await call('reply', { turnId, text }))['status'] === 'ok') told.set(turnId, text);
      } catch {
        await sleep(20);
      }
    }
  };
  const over = work();
  return {
    told,
    stop: async () => {
      stop.abort();
      await over;
    },
  };
}

/** I9. Each message once, in order, without a gap from the first one that was seen to the last one that is stored. */
export function* missed(name: string, seen: Seen, database: string, keys: readonly string[]): Generator<string> {
  const db = new DatabaseSync(database, { readOnly: true });
  try {
    for (const key of keys) {
      const row = db.prepare('SELECT next_seq FROM sessions WHERE key = ? AND current = 1').get(key);
      const last = Number(row?.['next_seq'] ?? 1) - 1;
      const got = seen.get(key) ?? [];
      const expected = Array.from({ length: last }, (_, index) => index + 1);
      if (got.join() !== expected.join()) yield `${name} saw ${got.join()} of ${key}, which has ${last} messages`;
    }
  } finally {
    db.close();
  }
}
