// Ids of effects come from their cause, so that doing something again gives the same id (I2).
import { createHash } from 'node:crypto';

/** Not guessable without knowing a random part of the cause, such as a run id. */
export function derivedId(...cause: (string | number)[]): string {
  return createHash('sha256').update(JSON.stringify(cause)).digest('base64url').slice(0, 22);
}
