// One operation: its right, its parameters, its result, and its routes over HTTP. Its handler is in src/server/operations.
import type { z } from 'zod';
import type { Scope } from '../frame.ts';

/** An operation over HTTP, where its parameters come from a path, a query and a body. */
export interface HttpRoute {
  /** What it does over HTTP, where that is not what the operation says. */
  about?: string;
  query?: z.ZodObject;
  body?: z.ZodType;
  /** Takes the header `Idempotency-Key`. */
  idempotent?: true;
  /** By status: JSON of this shape, or the media type of text. */
  answers: Record<number, z.ZodType | 'text/plain' | 'text/html'>;
  /** The success is a stream of events if the caller asks for one. */
  streams?: true;
}

export interface Operation {
  /** The one right that every door asks for. `session`: also tokens that are bound to a session have it. */
  scope: Scope | 'session';
  about: string;
  /** Closed: a field that is not in it is refused. */
  params: z.ZodType;
  /** Fields without a value are left out. */
  result: z.ZodType;
  /** By method and path. */
  http?: Readonly<Record<string, HttpRoute>>;
}

/** A table of operations by name. */
export type Operations = Readonly<Record<string, Operation>>;

/** What a caller writes. */
export type ParamsIn<T extends Operations> = { [N in keyof T]: z.input<T[N]['params']> };
/** What a handler gets. */
export type ParamsOut<T extends Operations> = { [N in keyof T]: z.output<T[N]['params']> };
export type ResultsOf<T extends Operations> = { [N in keyof T]: z.output<T[N]['result']> };
