// Handler of `tools.invoke`: a session calls its tools, or an operator reads with the tools of one.
import { createHash } from 'node:crypto';
import { InterlaneError } from '../../errors.ts';
import { levelName } from '../../levels.ts';
import type { tools as table } from '../../protocol/operations/tools.ts';
import { mayFlow } from '../../rules/taint.ts';
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
      const bound = () => find(call, { session: caller.sessionKey! });
      const row = own ? await bound() : await need(call, { session: sessionKey ?? 'main' });
      if (!row) throw new InterlaneError('SESSION_NOT_FOUND', `session ${caller.sessionKey!} of this token is gone; make a new token`);
      const callId = idempotencyKey === undefined ? parts.newId() : hash(`${caller.name}\n${idempotencyKey}`);
      const answer = await parts.invoker.callAs(row.pk, { tool, args, callId, readOnly: !own }, { ...call.pace, signal: call.signal });
      // In a turn a result raises the session that reads it. Outside a turn nothing would, so a result above the reader is withheld (I8).
      // A message that the call waited for may have raised the session meanwhile.
      const level = own ? levelName(((await bound()) ?? row).taint) : caller.level;
      if (!mayFlow(levelName(answer.taint), level))
        throw new InterlaneError(
          'POLICY_BLOCKED',
          `result of ${tool} is ${levelName(answer.taint)}, above the ${level} of its reader; let a run read it`,
        );
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
