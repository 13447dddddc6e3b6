// The kinds of input, one constructor each: the origin decides its provenance, its principal and how it is queued.
import type { QueueMode } from '../protocol/run.ts';
import type { Destination } from '../protocol/session.ts';
import type { TurnContext } from '../protocol/transcript.ts';
import type { SessionRow } from '../store/rows.ts';
import type { Input } from './queue.ts';

/** A message from a channel. Its answer goes back to the same chat; without one it is not delivered. */
export function fromChannel(message: {
  runId: string;
  text: string;
  channel: string;
  principal: string;
  taint: number;
  mode: QueueMode;
  destination: Destination | undefined;
  budgetMs: number;
  notBefore?: number | undefined;
}): Input {
  const { runId, text, channel, principal, taint, mode, destination, budgetMs, notBefore } = message;
  const provenance = { kind: 'user' as const, channel };
  return {
    runId,
    text,
    provenance,
    principal,
    taint,
    mode,
    class: 'main',
    deliver: destination !== undefined,
    destination,
    budgetMs,
    notBefore,
  };
}

/** A message of an operator, on the gateway's own channel. */
export function fromOperator(message: {
  runId: string;
  text: string;
  channel: string;
  principal: string;
  taint: number;
  mode: QueueMode;
  deliver: boolean;
  budgetMs: number;
}): Input {
  const { channel, ...rest } = message;
  return { ...rest, provenance: { kind: 'user', channel }, class: 'main' };
}

/** A message of another session: a request, a reply to one, or the announce turn of an exchange. Its answer is never delivered directly. */
export function fromSession(message: {
  runId: string;
  text: string;
  context: TurnContext;
  from: SessionRow;
  kind: 'inter_session' | 'announce';
  taint: number;
  flow: { kind: string; pk: number };
  chain: { rootPk: number | undefined; hop: number };
  budgetMs: number | undefined;
}): Input {
  const { from, kind, ...rest } = message;
  const provenance = { kind, sourceSession: from.key, sourceTool: 'sessions_send' };
  return { ...rest, provenance, principal: `session:${from.id}`, mode: 'followup', class: 'nested', deliver: false };
}
