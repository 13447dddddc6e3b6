// Every failure a caller can meet: one class, a closed list of codes, and one table code → websocket, HTTP and exit status.

interface ErrorFacts {
  ws: 'INVALID_REQUEST' | 'FORBIDDEN' | 'UNAVAILABLE';
  http: 400 | 401 | 403 | 404 | 405 | 409 | 413 | 429 | 500 | 503;
  /** Follows sysexits(3), so scripts can tell a typo from an outage. */
  exit: number;
  /** The same request may succeed later. */
  retryable?: true;
}

/** The status of each code on each transport. */
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
  ABOVE_CLEARANCE: { ws: 'FORBIDDEN', http: 403, exit: 77 },
  POLICY_BLOCKED: { ws: 'FORBIDDEN', http: 403, exit: 77 },
  TOOL_NOT_ALLOWED: { ws: 'FORBIDDEN', http: 403, exit: 77 },
  FILE_UNREADABLE: { ws: 'UNAVAILABLE', http: 503, exit: 66 },
  FILE_DENIED: { ws: 'UNAVAILABLE', http: 503, exit: 77 },
  STATE_UNUSABLE: { ws: 'UNAVAILABLE', http: 503, exit: 73 },
  PORT_UNUSABLE: { ws: 'UNAVAILABLE', http: 503, exit: 71 },
  STATE_IN_USE: { ws: 'UNAVAILABLE', http: 503, exit: 75 },
  STORE_UNUSABLE: { ws: 'UNAVAILABLE', http: 503, exit: 74 },
  STORE_FAILED: { ws: 'UNAVAILABLE', http: 503, exit: 74, retryable: true },
  UNAVAILABLE: { ws: 'UNAVAILABLE', http: 503, exit: 69, retryable: true },
  BUSY: { ws: 'UNAVAILABLE', http: 503, exit: 75, retryable: true },
  QUEUE_FULL: { ws: 'UNAVAILABLE', http: 429, exit: 75, retryable: true },
  RUN_NOT_FOUND: { ws: 'INVALID_REQUEST', http: 404, exit: 66 },
  DELIVERY_NOT_FOUND: { ws: 'INVALID_REQUEST', http: 404, exit: 66 },
  DELIVERY_SETTLED: { ws: 'INVALID_REQUEST', http: 409, exit: 65 },
  WORKSPACE_FULL: { ws: 'INVALID_REQUEST', http: 413, exit: 73 },
  SESSION_BUSY: { ws: 'INVALID_REQUEST', http: 409, exit: 75, retryable: true },
  NAME_RESERVED: { ws: 'INVALID_REQUEST', http: 409, exit: 65 },
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

  // How a run or a tool call ended.
  RUN_FAILED: { ws: 'UNAVAILABLE', http: 500, exit: 69 },
  POISON: { ws: 'UNAVAILABLE', http: 500, exit: 69 },
  TIMEOUT: { ws: 'UNAVAILABLE', http: 500, exit: 69 },
  ABORTED: { ws: 'UNAVAILABLE', http: 500, exit: 69 },
  TOOL_FAILED: { ws: 'UNAVAILABLE', http: 500, exit: 69 },
  OUTCOME_UNKNOWN: { ws: 'UNAVAILABLE', http: 500, exit: 69 },

  // What the port itself refuses: a route, or the handshake of a websocket.
  ROUTE_NOT_FOUND: { ws: 'INVALID_REQUEST', http: 404, exit: 69 },
  METHOD_NOT_ALLOWED: { ws: 'INVALID_REQUEST', http: 405, exit: 69 },
  HANDSHAKE_REQUIRED: { ws: 'INVALID_REQUEST', http: 400, exit: 69 },
  PROTOCOL_MISMATCH: { ws: 'INVALID_REQUEST', http: 400, exit: 64 },
  AUTH_TOKEN_MISSING: { ws: 'INVALID_REQUEST', http: 401, exit: 77 },
  AUTH_TOKEN_MISMATCH: { ws: 'INVALID_REQUEST', http: 401, exit: 77 },
} as const satisfies Record<string, ErrorFacts>;

export type ErrorCode = keyof typeof errorTable;

export const isErrorCode = (text: string): text is ErrorCode => Object.hasOwn(errorTable, text);

export const isRetryable = (code: ErrorCode): boolean => (errorTable[code] as ErrorFacts).retryable === true;

/** A message starts with the noun that failed and ends with what to do. Callers read it as it is, so it has no secrets and no stack. */
export class InterlaneError extends Error {
  override readonly name = 'InterlaneError';
  readonly code: ErrorCode;
  /** Details for programs, beside the code. */
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

const systemReasons: Record<string, string> = {
  EACCES: 'permission denied',
  EPERM: 'permission denied',
  EROFS: 'the file system is read-only',
  ENOENT: 'it does not exist',
  ENOTDIR: 'a part of its path is not a directory',
  EEXIST: 'it is not a directory',
  EISDIR: 'it is a directory',
  ERR_FS_EISDIR: 'it is a directory',
  ELOOP: 'its links go in a circle',
  ENAMETOOLONG: 'its name is too long',
  ENOSPC: 'the disk is full',
  EDQUOT: 'the disk quota is used up',
  EIO: 'the disk reported an error',
};

/** Why the system refused to touch a file, in plain words; for the end of a sentence. */
export function systemReason(thrown: unknown): string {
  return systemReasons[(thrown as NodeJS.ErrnoException | undefined)?.code ?? ''] ?? reasonOf(thrown);
}

/** Whether the system refused because of rights. */
export const isDenied = (thrown: unknown): boolean =>
  ['EACCES', 'EPERM'].includes((thrown as NodeJS.ErrnoException | undefined)?.code ?? '');

export const stateUnusable = (stateDir: string, thrown: unknown) =>
  new InterlaneError(
    isDenied(thrown) ? 'FILE_DENIED' : 'STATE_UNUSABLE',
    `state directory ${stateDir} cannot be used: ${systemReason(thrown)}; ${isDenied(thrown) ? 'use the account that it belongs to, or ' : ''}choose another with --state-dir`,
    { cause: thrown },
  );

export const stateReadOnly = (stateDir: string, thrown: unknown) =>
  new InterlaneError(
    'STORE_FAILED',
    `state directory ${stateDir} cannot be written: ${systemReason(thrown)}; make it writable, or choose another with --state-dir`,
    { cause: thrown },
  );

/** A name that cannot be taken. One that something hidden has gets the same answer as a reserved one, so that the answer does not tell. */
export const reservedName = (noun: 'label' | 'token' | 'guest', name: string) =>
  new InterlaneError('NAME_RESERVED', `${noun} name ${JSON.stringify(name.slice(0, 200))} is reserved; choose another`);
