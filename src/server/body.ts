// The body of a request, up to a limit → its JSON, read closed by a schema.
import type { z } from 'zod';
import { InterlaneError } from '../errors.ts';
import type { Pace } from '../pace.ts';
import { parseJson } from './json.ts';
import { readParams } from './params.ts';

/** An empty body is undefined, for which some schemas have a default; or an empty object, if nothing in it is required. */
export async function readBody<S extends z.ZodType>(schema: S, request: Request, limit: number, pace: Pace): Promise<z.output<S>> {
  const bytes = await bytesOf(request, limit);
  await pace.pause();
  return readParams(schema, bytes.byteLength === 0 ? nothing(schema) : parseJson(bytes, 'body'), 'invalid body');
}

const nothing = (schema: z.ZodType) => (!schema.safeParse(undefined).success && schema.safeParse({}).success ? {} : undefined);

export async function bytesOf(request: Request, limit: number): Promise<Uint8Array<ArrayBuffer>> {
  const tooLarge = () => new InterlaneError('BODY_TOO_LARGE', `body is larger than ${limit / 1024 / 1024} MiB; send less at once`);
  if (Number(request.headers.get('content-length') ?? 0) > limit) throw tooLarge();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of (request.body ?? []) as AsyncIterable<Uint8Array>) {
    size += chunk.byteLength;
    if (size > limit) throw tooLarge();
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
