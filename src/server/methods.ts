// The method table at work: look up → may the caller → closed parameters → handler.
import type { z } from 'zod';
import { nearest } from '../nearest.ts';
import { InterlaneError } from '../errors.ts';
import { methods, type MethodName } from '../protocol/method.ts';
import { type Results } from '../protocol/result.ts';
import { requireScope } from './auth.ts';
import { accessMethods } from './methods/access.ts';
import { chatMethods } from './methods/chat.ts';
import { createDesk, type Call, type Handlers, type MethodsParts } from './methods/desk.ts';
import { systemMethods } from './methods/system.ts';
import { sessionMethods } from './methods/sessions.ts';

export type Methods = ReturnType<typeof createMethods>;

export function createMethods(parts: MethodsParts) {
  const desk = createDesk(parts);
  const handlers: Handlers<MethodName> = {
    ...systemMethods(desk),
    ...sessionMethods(desk),
    ...chatMethods(desk),
    ...accessMethods(desk),
  };
  return {
    names: Object.keys(handlers) as MethodName[],
    /** The end of a run, or how it stands when the time is over. For who may read. */
    wait: handlers['agent.wait'],
    /** Looks the method up, asks whether the caller may, reads the parameters closed, and calls it. */
    async call(name: string, params: unknown, call: Call): Promise<unknown> {
      if (!Object.hasOwn(methods, name)) {
        const [near] = nearest(name, Object.keys(methods));
        throw new InterlaneError('METHOD_NOT_FOUND', `unknown method: ${name.slice(0, 128)}${near ? `; did you mean ${near}?` : ''}`);
      }
      const method = name as MethodName;
      const { scope, params: schema } = methods[method];
      if (scope !== 'session') requireScope(call.caller, scope, method);
      const read = schema.safeParse(params ?? undefined);
      if (!read.success) throw invalidParams(`invalid ${method} params`, read.error);
      return (handlers[method] as (params: unknown, call: Call) => Promise<unknown>)(read.data, call);
    },
    /** The same for a caller inside the server, with its types. */
    do<M extends MethodName>(method: M, params: z.input<(typeof methods)[M]['params']>, call: Call): Promise<Results[M]> {
      return this.call(method, params, call) as Promise<Results[M]>;
    },
  };
}

/** Says where and what, in the protocol's words: `at /limit: …`, `at root: unexpected property 'x'`. */
export function invalidParams(what: string, error: z.ZodError): InterlaneError {
  const lines = error.issues.slice(0, 5).map((issue) => {
    const at = issue.path.length === 0 ? 'root' : `/${issue.path.map(String).join('/')}`;
    if (issue.code === 'unrecognized_keys') return `at ${at}: unexpected property '${issue.keys[0]!.slice(0, 100)}'`;
    return `at ${at}: ${issue.message}`;
  });
  const [first] = error.issues;
  const path = [...(first?.path ?? []), ...(first?.code === 'unrecognized_keys' ? [first.keys[0]!.slice(0, 100)] : [])]
    .map(String)
    .join('/');
  return new InterlaneError('INVALID_REQUEST', `${what}: ${lines.join('; ')}`, { details: { path: `/${path}` } });
}
