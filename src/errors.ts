// Every failure a caller can meet: one class, a closed list of codes, and one table code → websocket, HTTP and exit status.

/** What each code becomes at each door. `exit` follows sysexits(3), so scripts can tell a typo from an outage. */
export const errorTable = {
  USAGE: { ws: 'INVALID_REQUEST', http: 400, exit: 64 },
  INVALID_REQUEST: { ws: 'INVALID_REQUEST', http: 400, exit: 65 },
  SESSION_KEY_INVALID: { ws: 'INVALID_REQUEST', http: 400, exit: 65 },
  SESSION_KEY_RESERVED: { ws: 'INVALID_REQUEST', http: 400, exit: 65 },
  SESSION_NOT_FOUND: { ws: 'INVALID_REQUEST', http: 404, exit: 66 },
  SESSION_CHANGED: { ws: 'INVALID_REQUEST', http: 409, exit: 65 },
  SESSION_AMBIGUOUS: { ws: 'INVALID_REQUEST', http: 409, exit: 65 },
  AGENT_NOT_FOUND: { ws: 'INVALID_REQUEST', http: 404, exit: 66 },
  AGENT_NOT_ALLOWED: { ws: 'FORBIDDEN', http: 403, exit: 77 },
  SPAWN_DEPTH: { ws: 'FORBIDDEN', http: 403, exit: 77 },
  SANDBOX_REQUIRED: { ws: 'FORBIDDEN', http: 403, exit: 77 },
  SEND_TO_SELF: { ws: 'INVALID_REQUEST', http: 400, exit: 65 },
  SEND_POLICY_DENIED: { ws: 'FORBIDDEN', http: 403, exit: 77 },
  WRITE_DOWN: { ws: 'FORBIDDEN', http: 403, exit: 77 },
  POLICY_BLOCKED: { ws: 'FORBIDDEN', http: 403, exit: 77 },
  TOOL_NOT_ALLOWED: { ws: 'FORBIDDEN', http: 403, exit: 77 },
  FILE_UNREADABLE: { ws: 'UNAVAILABLE', http: 503, exit: 66 },
  STATE_UNUSABLE: { ws: 'UNAVAILABLE', http: 503, exit: 73 },
  PORT_UNUSABLE: { ws: 'UNAVAILABLE', http: 503, exit: 71 },
  STATE_IN_USE: { ws: 'UNAVAILABLE', http: 503, exit: 75 },
  STORE_UNUSABLE: { ws: 'UNAVAILABLE', http: 503, exit: 74 },
  STORE_FAILED: { ws: 'UNAVAILABLE', http: 503, exit: 74 },
  UNAVAILABLE: { ws: 'UNAVAILABLE', http: 503, exit: 69 },
  BUSY: { ws: 'UNAVAILABLE', http: 503, exit: 75 },
  QUEUE_FULL: { ws: 'UNAVAILABLE', http: 429, exit: 75 },
  RUN_NOT_FOUND: { ws: 'INVALID_REQUEST', http: 404, exit: 66 },
  DELIVERY_NOT_FOUND: { ws: 'INVALID_REQUEST', http: 404, exit: 66 },
  DELIVERY_SETTLED: { ws: 'INVALID_REQUEST', http: 409, exit: 65 },
  SESSION_BUSY: { ws: 'INVALID_REQUEST', http: 409, exit: 75 },
  LABEL_IN_USE: { ws: 'INVALID_REQUEST', http: 409, exit: 65 },
  IDEMPOTENCY_CONFLICT: { ws: 'INVALID_REQUEST', http: 409, exit: 65 },
  CYCLIC_WAIT: { ws: 'INVALID_REQUEST', http: 409, exit: 65 },
  LOOP_LIMIT: { ws: 'FORBIDDEN', http: 429, exit: 77 },
  STEP_LIMIT: { ws: 'FORBIDDEN', http: 429, exit: 77 },
  MODEL_UNKNOWN: { ws: 'INVALID_REQUEST', http: 400, exit: 65 },
  MODEL_FAILED: { ws: 'UNAVAILABLE', http: 503, exit: 69 },
  CONTEXT_OVERFLOW: { ws: 'UNAVAILABLE', http: 503, exit: 69 },
  LEASE_LOST: { ws: 'UNAVAILABLE', http: 503, exit: 75 },
  CONFIG_INVALID: { ws: 'INVALID_REQUEST', http: 400, exit: 78 },
  BODY_TOO_LARGE: { ws: 'INVALID_REQUEST', http: 413, exit: 65 },
  METHOD_NOT_FOUND: { ws: 'INVALID_REQUEST', http: 404, exit: 64 },
  UNAUTHORIZED: { ws: 'INVALID_REQUEST', http: 401, exit: 77 },
  AUTH_RATE_LIMITED: { ws: 'INVALID_REQUEST', http: 429, exit: 75 },
  MISSING_SCOPE: { ws: 'FORBIDDEN', http: 403, exit: 77 },
  TURN_NOT_OPEN: { ws: 'INVALID_REQUEST', http: 409, exit: 65 },
  TOKEN_NOT_FOUND: { ws: 'INVALID_REQUEST', http: 404, exit: 66 },
  TOKEN_EXISTS: { ws: 'INVALID_REQUEST', http: 409, exit: 65 },
  CHANNEL_NOT_CONFIGURED: { ws: 'UNAVAILABLE', http: 503, exit: 69 },
  INTERNAL: { ws: 'UNAVAILABLE', http: 500, exit: 70 },
} as const;

export type ErrorCode = keyof typeof errorTable;

/** A message starts with the noun that failed and ends with what to do. It is shown as it is: no secrets, no stack. */
export class InterlaneError extends Error {
  override readonly name = 'InterlaneError';
  readonly code: ErrorCode;
  /** What a program may want to know beside the code. */
  readonly details: Record<string, unknown>;

  constructor(code: ErrorCode, message: string, options?: ErrorOptions & { details?: Record<string, unknown> }) {
    super(message, options);
    this.code = code;
    this.details = options?.details ?? {};
  }
}

/** The text of anything that was thrown, for the end of a sentence. */
export function reasonOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}
