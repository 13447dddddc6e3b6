// What a caller wrote → the parameters it means, read closed by a schema, or an error that says where and what.
import type { z } from 'zod';
import { InterlaneError } from '../errors.ts';

/** `what` begins the message: `invalid sessions.list params`. */
export function readParams<S extends z.ZodType>(schema: S, written: unknown, what: string): z.output<S> {
  const read = schema.safeParse(written);
  if (!read.success) throw invalidParams(what, read.error);
  return read.data;
}

/** In the protocol's words: `at /limit: …`, `at root: unexpected property 'x'`. */
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
