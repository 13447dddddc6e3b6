import { expect, it } from 'vitest';
import { Pacer } from '../pace.ts';
import type { Auth } from './auth.ts';
import { TokenClients } from './token-clients.ts';

it('a token is one client until it ends; a request that comes after that is one of its own, and is not kept', () => {
  const over = new Set<string>();
  let end: (tokenId: string) => void = () => {};
  const auth = { onEnd: (listener: typeof end) => (end = listener), isOver: ({ tokenId }: { tokenId: string }) => over.has(tokenId) };
  const pacer = new Pacer({ afterTick: setImmediate, afterPiece: setImmediate, elapsed: () => 0 });
  const clients = new TokenClients(pacer, auth as unknown as Auth);
  expect(clients.of('t')).toBe(clients.of('t'));
  over.add('t');
  end('t');
  expect(clients.of('t')).not.toBe(clients.of('t'));
});
