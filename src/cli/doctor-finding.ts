// One line of `interlane doctor`: what was looked at, how it is, and what to do.
import type { ErrorCode } from '../errors.ts';

export interface Finding {
  what: string;
  state: 'ok' | 'note' | 'bad';
  says: string;
  fix?: string;
  /** Of what is bad. */
  code?: ErrorCode;
}

export const ok = (what: string, says: string): Finding => ({ what, state: 'ok', says });
export const note = (what: string, says: string, fix?: string): Finding => ({
  what,
  state: 'note',
  says,
  ...(fix === undefined ? {} : { fix }),
});
export const bad = (what: string, code: ErrorCode, says: string, fix: string): Finding => ({ what, state: 'bad', says, fix, code });
