import { describe, expect, it } from 'vitest';
import { nearest } from './nearest.ts';
import { errorTable, isRetryable, type ErrorCode } from './errors.ts';

describe('the error table', () => {
  it('is what clients and scripts rely on', () => {
    expect(Object.fromEntries(Object.entries(errorTable).map(([code, { ws, http, exit }]) => [code, `${ws} ${http} ${exit}`]))).toEqual({
      USAGE: 'INVALID_REQUEST 400 64',
      INVALID_REQUEST: 'INVALID_REQUEST 400 65',
      SESSION_KEY_INVALID: 'INVALID_REQUEST 400 65',
      SESSION_KEY_RESERVED: 'INVALID_REQUEST 400 65',
      SESSION_NOT_FOUND: 'INVALID_REQUEST 404 66',
      SESSION_CHANGED: 'INVALID_REQUEST 409 65',
      SESSION_AMBIGUOUS: 'INVALID_REQUEST 409 65',
      AGENT_NOT_FOUND: 'INVALID_REQUEST 404 66',
      AGENT_NOT_ALLOWED: 'FORBIDDEN 403 77',
      SPAWN_DEPTH: 'FORBIDDEN 403 77',
      SANDBOX_REQUIRED: 'FORBIDDEN 403 77',
      SEND_TO_SELF: 'INVALID_REQUEST 400 65',
      SEND_POLICY_DENIED: 'FORBIDDEN 403 77',
      WRITE_DOWN: 'FORBIDDEN 403 77',
      ABOVE_CLEARANCE: 'FORBIDDEN 403 77',
      WORKSPACE_FULL: 'INVALID_REQUEST 413 73',
      POLICY_BLOCKED: 'FORBIDDEN 403 77',
      TOOL_NOT_ALLOWED: 'FORBIDDEN 403 77',
      FILE_UNREADABLE: 'UNAVAILABLE 503 66',
      FILE_DENIED: 'UNAVAILABLE 503 77',
      STATE_UNUSABLE: 'UNAVAILABLE 503 73',
      PORT_UNUSABLE: 'UNAVAILABLE 503 71',
      STATE_IN_USE: 'UNAVAILABLE 503 75',
      STORE_UNUSABLE: 'UNAVAILABLE 503 74',
      STORE_FAILED: 'UNAVAILABLE 503 74',
      UNAVAILABLE: 'UNAVAILABLE 503 69',
      BUSY: 'UNAVAILABLE 503 75',
      QUEUE_FULL: 'UNAVAILABLE 429 75',
      RUN_NOT_FOUND: 'INVALID_REQUEST 404 66',
      DELIVERY_NOT_FOUND: 'INVALID_REQUEST 404 66',
      DELIVERY_SETTLED: 'INVALID_REQUEST 409 65',
      SESSION_BUSY: 'INVALID_REQUEST 409 75',
      LABEL_IN_USE: 'INVALID_REQUEST 409 65',
      IDEMPOTENCY_CONFLICT: 'INVALID_REQUEST 409 65',
      CYCLIC_WAIT: 'INVALID_REQUEST 409 65',
      LOOP_LIMIT: 'FORBIDDEN 429 77',
      STEP_LIMIT: 'FORBIDDEN 429 77',
      MODEL_UNKNOWN: 'INVALID_REQUEST 400 65',
      NAME_RESERVED: 'INVALID_REQUEST 409 65',
      MODEL_FAILED: 'UNAVAILABLE 503 69',
      CONTEXT_OVERFLOW: 'UNAVAILABLE 503 69',
      LEASE_LOST: 'UNAVAILABLE 503 75',
      CONFIG_INVALID: 'INVALID_REQUEST 400 78',
      BODY_TOO_LARGE: 'INVALID_REQUEST 413 65',
      METHOD_NOT_FOUND: 'INVALID_REQUEST 404 64',
      UNAUTHORIZED: 'INVALID_REQUEST 401 77',
      AUTH_RATE_LIMITED: 'INVALID_REQUEST 429 75',
      MISSING_SCOPE: 'FORBIDDEN 403 77',
      TURN_NOT_OPEN: 'INVALID_REQUEST 409 65',
      TOKEN_NOT_FOUND: 'INVALID_REQUEST 404 66',
      TOKEN_EXISTS: 'INVALID_REQUEST 409 65',
      CHANNEL_NOT_CONFIGURED: 'UNAVAILABLE 503 69',
      INTERNAL: 'UNAVAILABLE 500 70',
      RUN_FAILED: 'UNAVAILABLE 500 69',
      POISON: 'UNAVAILABLE 500 69',
      TIMEOUT: 'UNAVAILABLE 500 69',
      ABORTED: 'UNAVAILABLE 500 69',
      TOOL_FAILED: 'UNAVAILABLE 500 69',
      OUTCOME_UNKNOWN: 'UNAVAILABLE 500 69',
      ROUTE_NOT_FOUND: 'INVALID_REQUEST 404 69',
      METHOD_NOT_ALLOWED: 'INVALID_REQUEST 405 69',
      HANDSHAKE_REQUIRED: 'INVALID_REQUEST 400 69',
      PROTOCOL_MISMATCH: 'INVALID_REQUEST 400 64',
      AUTH_TOKEN_MISSING: 'INVALID_REQUEST 401 77',
      AUTH_TOKEN_MISMATCH: 'INVALID_REQUEST 401 77',
    });
    expect(Object.keys(errorTable).filter((code) => isRetryable(code as ErrorCode))).toEqual([
      'STORE_FAILED',
      'UNAVAILABLE',
      'BUSY',
      'QUEUE_FULL',
      'SESSION_BUSY',
    ]);
  });
});

describe('a suggestion', () => {
  it('is the nearest word, with a swap of letters counting as one slip', () => {
    expect(nearest('sesion', ['agents', 'session', 'tools'])).toEqual(['session']);
    expect(nearest('amin', ['main', 'admin'])).toEqual(['admin']);
    expect(nearest('mian', ['main', 'mine'])).toEqual(['main']);
  });

  it('is not made for a word that is nothing like any other', () => {
    expect(nearest('zzzzzz', ['agents', 'session'])).toEqual([]);
  });

  it('is at most as many as asked for, nearest first', () => {
    expect(nearest('agent:main:mian', ['agent:main:main', 'agent:main:mia', 'agent:work:x', 'agent:main:man'], 2)).toEqual([
      'agent:main:main',
      'agent:main:man',
    ]);
  });
});
