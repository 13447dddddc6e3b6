// What an operator should know: a sentence, and what it concerns.

/** Names for the log, never a text that somebody wrote. */
export interface About {
  run?: string | undefined;
  session?: string | undefined;
  /** The id that a client gave its request, or that an HTTP answer has in `x-request-id`. */
  request?: string | undefined;
  delivery?: string | undefined;
  exchange?: string | undefined;
}

export type Warn = (message: string, about?: About) => void;
/** A failure that no caller waits for. */
export type Report = (what: string, error: unknown, about?: About) => void;
