// Bytes from a client → a JSON value. Its shape is checked first, so that a small frame cannot take long to parse.
import { InterlaneError } from '../errors.ts';
import { JsonShape } from '../json-shape.ts';

const limits = { depth: 64, values: 20_000, keys: 5_000 };
const decoders = { frame: new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }), body: new TextDecoder('utf-8', { fatal: true }) };

/** Throws INVALID_REQUEST that names `what`, for a shape that no request needs and for text that is no JSON. */
export function parseJson(bytes: Uint8Array, what: 'frame' | 'body'): unknown {
  checkShape(bytes, what);
  try {
    return JSON.parse(decoders[what].decode(bytes));
  } catch {
    throw refused(what === 'frame' ? 'frame is not JSON' : 'body is not JSON; send an object with content-type application/json');
  }
}

export function checkShape(bytes: Uint8Array, what: 'frame' | 'body'): void {
  const tooMuch = new JsonShape(limits).add(bytes);
  if (tooMuch !== undefined) throw refused(`${what} ${tooMuch}; send less at once`);
}

const refused = (message: string) => new InterlaneError('INVALID_REQUEST', message);
