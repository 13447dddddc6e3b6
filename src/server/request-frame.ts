// The bytes of a websocket frame → a request, or the error and the id to answer it with.
import type { InterlaneError } from '../errors.ts';
import { RequestFrame } from '../protocol/frame.ts';
import { parseJson } from './json.ts';
import { invalidParams } from './params.ts';

type Read = { ok: true; request: RequestFrame } | { ok: false; id: string; error: InterlaneError };

export function readRequest(data: Buffer): Read {
  let frame: unknown;
  try {
    frame = parseJson(data, 'frame');
  } catch (thrown) {
    return { ok: false, id: writtenId(data), error: thrown as InterlaneError };
  }
  const read = RequestFrame.safeParse(frame);
  if (read.success) return { ok: true, request: read.data };
  const { id } = (frame ?? {}) as { id?: unknown };
  const named = typeof id === 'string' && id !== '' && id.length <= 256 ? id : noId;
  return { ok: false, id: named, error: invalidParams('invalid request frame', read.error) };
}

const noId = 'invalid';
const opening = /^\s*\{\s*(?:"type"\s*:\s*"req"\s*,\s*)?"id"\s*:\s*"([^"\\]{1,256})"/;

/** The id of a frame that is not parsed, if it is at the front, where clients write it. */
export const writtenId = (data: Buffer): string => opening.exec(data.toString('utf8', 0, 1024))?.[1] ?? noId;
