// Handler of `tools.invoke`: a session calls its tools, or an operator reads with the tools of one.
import { createHash } from 'node:crypto';
import { InterlaneError } from '../../errors.ts';
import type { tools as table } from '../../protocol/operations/tools.ts';
import { keyMeant } from '../../sessions/find.ts';
import { requireScope } from '../rights.ts';
import type { Context, Handlers } from './context.ts';

export function toolHandlers(context: Context): Handlers<keyof typeof table> {
  const { parts, world, find, need } = context;
  return {
    'tools.invoke': async ({ tool, args, sessionKey, idempotencyKey }, call) => {
      const { caller } = call;
      const own = caller.kind === 'session';
      if (!own) requireScope(caller, 'operator.read', 'tools.invoke');
      if (own && sessionKey !== undefined && keyMeant(world(), { session: sessionKey }) !== caller.sessionKey)
        throw new InterlaneError('MISSING_SCOPE', 'sessionKey is not the session this token is bound to; leave it out');
      // An operator reads what the session may see and the token's level allows.
      const row = own ? await find(call, { session: caller.sessionKey! }) : await need(call, { session: sessionKey ?? 'main' });
      if (!row) throw new InterlaneError('SESSION_NOT_FOUND', `session ${caller.sessionKey!} of this token is gone; make a new token`);
      const callId = idempotencyKey === undefined ? parts.newId() : hash(`${caller.name}\n${idempotencyKey}`);
      const by = own ? ('session' as const) : ('operator' as const);
      const pace = { ...call.pace, signal: call.signal };
      const answer = await parts.invoker.callAs(row.pk, { tool, args, callId, by, ceiling: caller.level }, pace);
      return { ok: !answer.isError, tool, result: parsed(answer.text) };
    },
  };
}

/** A tool answers with JSON or plain text. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const hash = (text: string) => createHash('sha256').update(text).digest('base64url').slice(0, 22);
