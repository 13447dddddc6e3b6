// Anything thrown → the error that a client gets, at each door. An unknown error becomes INTERNAL and hides its cause.
import { errorTable, InterlaneError, isRetryable, type ErrorCode } from '../errors.ts';
import type { ErrorShape } from '../protocol/frame.ts';

type HttpStatus = (typeof errorTable)[ErrorCode]['http'];

export function errorShape(thrown: unknown): ErrorShape {
  const { code, message, details } = known(thrown);
  return {
    code: errorTable[code].ws,
    message,
    details: { code, ...details },
    ...(isRetryable(code) ? { retryable: true, retryAfterMs: 1_000 } : {}),
  };
}

/** The status and the body of an HTTP answer. */
export function httpFailure(thrown: unknown): { status: HttpStatus; body: object } {
  const { code, message, details } = known(thrown);
  return {
    status: errorTable[code].http,
    body: { ok: false, error: { type: failureType(errorTable[code].http), code, message, ...details } },
  };
}

/** The peers' word for a status. */
export const failureType = (status: HttpStatus) => types[status];

const types: Record<HttpStatus, string> = {
  400: 'invalid_request_error',
  401: 'unauthorized',
  403: 'forbidden',
  404: 'not_found',
  405: 'method_not_allowed',
  409: 'conflict',
  413: 'request_too_large',
  429: 'rate_limited',
  500: 'internal_error',
  503: 'unavailable',
};

function known(thrown: unknown): InterlaneError {
  return thrown instanceof InterlaneError ? thrown : new InterlaneError('INTERNAL', 'request failed inside the gateway; its log says why');
}
