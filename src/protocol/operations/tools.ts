// Operations that call tools.
import { z } from 'zod';
import { Id, ignored, Key } from './fields.ts';
import type { Operations } from './operation.ts';

const InvokeParams = z.strictObject({
  tool: z.string().min(1).max(128),
  args: z.record(z.string(), z.unknown()).default({}),
  sessionKey: Key.optional(),
  idempotencyKey: Id.optional(),
  ...ignored('action', 'dryRun'),
});

/** A tool's result over HTTP, where its failure is the failure of the request. */
export const ToolAnswer = z.union([
  z.object({ ok: z.literal(true), result: z.unknown() }),
  z.object({ ok: z.literal(false), error: z.object({ type: z.string(), code: z.string(), message: z.string() }) }),
]);
export type ToolAnswer = z.infer<typeof ToolAnswer>;

export const tools = {
  'tools.invoke': {
    scope: 'session',
    about:
      'call a session tool as the session the token is bound to; an operator may look through the eyes of one with tools that only read',
    params: InvokeParams,
    result: z.object({ ok: z.boolean(), tool: z.string(), result: z.unknown() }),
    http: {
      'POST /tools/invoke': { body: InvokeParams, idempotent: true, answers: { 200: ToolAnswer } },
      'POST /tools/{name}': {
        about: 'the same for one tool, whose arguments are the body; an operator names the session in the query',
        query: InvokeParams.pick({ sessionKey: true }),
        body: InvokeParams.shape.args,
        idempotent: true,
        answers: { 200: ToolAnswer },
      },
    },
  },
} as const satisfies Operations;
