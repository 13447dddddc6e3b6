// What a message is called on the wire, pinned as text, and the way there and back.
import { describe, expect, it } from 'vitest';
import type { WireMessage } from '../result.ts';
import { fromPeer, PeerMessage, toPeer } from './openclaw.ts';

const message: WireMessage = {
  role: 'user',
  content: 'hello',
  timestamp: 1,
  entry: { id: 'm1', seq: 1, runId: 'r', idempotencyKey: 'r:user' },
  provenance: { kind: 'inter_session', sourceSession: 'agent:bo:main' },
  taint: 'INTERNAL',
};
const written =
  '{"role":"user","content":"hello","timestamp":1,"__openclaw":{"id":"m1","seq":1,"runId":"r","idempotencyKey":"r:user"},' +
  '"provenance":{"kind":"inter_session","sourceSession":"agent:bo:main"},"taint":"INTERNAL"}';

describe('a message on the wire', () => {
  it.each([
    ['in an event', { runId: 'r', message, ts: 2 }, `{"runId":"r","message":${written},"ts":2}`],
    ['in a page', { messages: [message], hasMore: false }, `{"messages":[${written}],"hasMore":false}`],
  ])('has the name of the peer for its entry, %s, and is read back with the same bytes', (_, payload, text) => {
    expect(JSON.stringify(toPeer(payload))).toBe(text);
    const read = fromPeer(JSON.parse(text));
    expect(read).toEqual(payload);
    expect(JSON.stringify(read)).toBe(JSON.stringify(payload));
  });

  it('fits the schema of the documents', () => {
    expect(Object.keys(PeerMessage.parse(JSON.parse(written)))).toContain('__openclaw');
    expect(PeerMessage.safeParse(message).success).toBe(false);
  });

  it.each([[undefined], [null], ['text'], [{ message: 'a text' }], [{ messages: ['a text'] }], [{ ok: true, entry: { key: 'k' } }]])(
    'is not looked for in %j',
    (payload) => {
      expect(toPeer(payload)).toEqual(payload);
      expect(fromPeer(payload)).toEqual(payload);
    },
  );
});
