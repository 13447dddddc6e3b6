import { expect, expectTypeOf, it } from 'vitest';
import type { OperationName } from '../../protocol/operations/all.ts';
import type { createHandlers } from './all.ts';
import type { Handlers } from './context.ts';

it('the handlers are those of the table, and the compiler refuses one that is missing or one too many', () => {
  expectTypeOf<keyof ReturnType<typeof createHandlers>>().toEqualTypeOf<OperationName>();
  const health = async () => ({ ok: true as const, ts: 0, durationMs: 0 });
  // @ts-expect-error -- `agents.list` has no handler
  const missing: Handlers<'health' | 'agents.list'> = { health };
  // @ts-expect-error -- `agents.list` is no operation of this table
  const tooMany: Handlers<'health'> = { health, 'agents.list': health };
  // @ts-expect-error -- its answer is not the one of the table
  const wrong: Handlers<'health'> = { health: async () => ({ ok: true as const }) };
  expect([missing, tooMany, wrong].map((table) => Object.keys(table))).toEqual([['health'], ['health', 'agents.list'], ['health']]);
});
