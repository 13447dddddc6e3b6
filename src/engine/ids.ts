// Ids of effects come from their cause, so that doing something again gives the same id (I2).
import { hash } from 'node:crypto';

/** Not guessable without knowing a random part of the cause, such as a run id. */
export function derivedId(...cause: (string | number)[]): string {
  return hash('sha256', JSON.stringify(cause), 'base64url').slice(0, 22);
}
