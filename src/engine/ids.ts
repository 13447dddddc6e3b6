// The id of an effect is derived from its cause, so that a repeated effect has the same id (I2).
import { hash } from 'node:crypto';

/** Cannot be guessed without a random part of the cause, such as a run id. */
export function derivedId(...cause: (string | number)[]): string {
  return hash('sha256', JSON.stringify(cause), 'base64url').slice(0, 22);
}
