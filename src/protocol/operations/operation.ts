// One operation: its right, its parameters, its result, and its routes over HTTP. Its handler is in src/server/operations.
import type { z } from 'zod';
import type { Scope } from '../frame.ts';

/** An operation over HTTP, where its parameters come from a path, a query and a body. */
export interface HttpRoute {
  /** Its description over HTTP, if it differs from the operation's. */
  about?: string;
  query?: z.ZodObject;
  body?: z.ZodType;
  /** Takes the header `Idempotency-Key`. */
  idempotent?: true;
  /** By status: JSON of this shape, or the media type of text. */
  answers: Record<number, z.ZodType | 'text/plain' | 'text/html'>;
  /** The response is a stream of events if the caller requests one. */
  streams?: true;
}

export interface Operation {
  /** The right that every transport requires. `session`: tokens that are bound to a session have it too. */
  scope: Scope | 'session';
  about: string;
  /** Closed: unknown fields are refused. */
  params: z.ZodType;
  /** Fields without a value are left out. */
  result: z.ZodType;
  /** By method and path. */
  http?: Readonly<Record<string, HttpRoute>>;
}

/** A table of operations by name. */
export type Operations = Readonly<Record<string, Operation>>;

/** The parameters as a caller writes them. */
export type ParamsIn<T extends Operations> = { [N in keyof T]: z.input<T[N]['params']> };
/** The parameters as a handler gets them. */
export type ParamsOut<T extends Operations> = { [N in keyof T]: z.output<T[N]['params']> };
export type ResultsOf<T extends Operations> = { [N in keyof T]: z.output<T[N]['result']> };
