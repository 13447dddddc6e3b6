// sessions_send: a message into another session, and its reply if the caller waits for it.
import { z } from 'zod';
import { InterlaneError } from '../errors.ts';
import { requireSession } from '../sessions/find.ts';
import { alias, defineTool, lookOf, needed, oneOf } from './define.ts';

const longestWaitSeconds = 3_600;

export const sessionsSend = defineTool({
  name: 'sessions_send',
  description: "Send a message to another session and wait for its reply. It is answered by that session's agent, not by a person.",
  effect: 'keyed',
  params: z.strictObject({
    sessionKey: z.string().min(1).max(4096).optional().describe('session key or session id; or give label'),
    session_id: alias(z.string().min(1).max(4096)),
    label: z.string().min(1).max(512).optional().describe('label of the session, instead of sessionKey'),
    agentId: z.string().max(64).optional().describe('with label: the agent whose session it is'),
    message: needed(z.string().min(1).max(1_000_000), 'the text to send'),
    content: alias(z.string().min(1).max(1_000_000)),
    timeoutSeconds: z.number().min(0).optional().describe('seconds to wait for the reply (default 30); 0 sends and does not wait'),
  }),
  async run(context, args) {
    const message = oneOf(args, 'message', 'content');
    if (message === undefined || message.trim() === '')
      throw new InterlaneError('INVALID_REQUEST', 'message is missing; write what to send');
    const target = await context.store.read(
      requireSession(lookOf(context)),
      {
        session: oneOf(args, 'sessionKey', 'session_id'),
        label: args.label,
        agentId: args.agentId,
      },
      context,
    );
    const waitMs = Math.ceil(Math.min(args.timeoutSeconds ?? 30, longestWaitSeconds) * 1_000);
    const sent = await context.send({
      from: context.origin,
      targetSessionPk: target.pk,
      text: message,
      waitMs,
      maxTurns: context.maxPingPongTurns,
      now: context.now,
    });
    if (sent.waiting) return { pending: true };
    if ('runPk' in context.origin || waitMs === 0) return { value: { runId: sent.runId, status: 'accepted' } };
    const answer = await context.engine.reply(sent.runId, context.session.pk, waitMs, context.signal);
    return { value: answer.value, isError: answer.value.status === 'error', taint: answer.taint };
  },
});
