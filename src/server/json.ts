// Bytes from a client → a JSON value. The shape is checked first: parsing many or deeply nested values takes far longer than counting them.
import { InterlaneError } from '../errors.ts';

const mostValues = 20_000;
const mostDepth = 64;

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
  const shape = shapeOf(bytes);
  if (shape.depth > mostDepth) throw refused(`${what} is nested deeper than ${mostDepth} levels; send it flatter`);
  if (shape.values > mostValues) throw refused(`${what} has more than ${mostValues} values; send less at once`);
}

/** The depth and the number of values, up to the first that is too much. Each byte is looked at once; text that is no JSON counts somehow. */
function shapeOf(bytes: Uint8Array): { depth: number; values: number } {
  let depth = 0;
  let values = 1;
  for (let at = 0; at < bytes.length; at++) {
    switch (bytes[at]) {
      case 0x22: // "
        for (at++; at < bytes.length && bytes[at] !== 0x22; at++) if (bytes[at] === 0x5c) at++; // a backslash
        break;
      case 0x5b: // [
      case 0x7b: // {
        values++;
        if (++depth > mostDepth) return { depth, values };
        break;
      case 0x5d: // ]
      case 0x7d: // }
        depth--;
        break;
      case 0x2c: // ,
        if (++values > mostValues) return { depth, values };
        break;
      default:
    }
  }
  return { depth, values };
}

const refused = (message: string) => new InterlaneError('INVALID_REQUEST', message);
