// The body of a request, up to a limit → its JSON, read closed by a schema.
import type { z } from 'zod';
import { InterlaneError } from '../errors.ts';
import { largestBody } from '../protocol/http.ts';
import { readParams } from './params.ts';

export async function readBody<S extends z.ZodType>(schema: S, request: Request): Promise<z.output<S>> {
  return readParams(schema, parsed(await bytesOf(request)), 'invalid body');
}

async function bytesOf(request: Request): Promise<Uint8Array> {
  if (Number(request.headers.get('content-length') ?? 0) > largestBody) throw tooLarge();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of (request.body ?? []) as AsyncIterable<Uint8Array>) {
    size += chunk.byteLength;
    if (size > largestBody) throw tooLarge();
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** An empty body is undefined, for which some schemas have a default. */
function parsed(bytes: Uint8Array): unknown {
  if (bytes.byteLength === 0) return undefined;
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    throw new InterlaneError('INVALID_REQUEST', 'body is not JSON; send an object with content-type application/json');
  }
}

const tooLarge = () => new InterlaneError('BODY_TOO_LARGE', `body is larger than ${largestBody / 1024 / 1024} MiB; send less at once`);
