// The first request of a websocket: `connect` → what the client asks for, why it is refused, or the hello that welcomes it.
import { InterlaneError } from '../errors.ts';
import { bufferLimit, ConnectParams, eventNames, protocolVersion, tickIntervalMs, type HelloOk } from '../protocol/frame.ts';
import { frameLimitOf, type Caller } from './rights.ts';
import { invalidParams } from './params.ts';

/** The parameters of a handshake that can go on, or why it cannot. */
export function readConnect(method: string, params: unknown): ConnectParams | InterlaneError {
  if (method !== 'connect') return new InterlaneError('HANDSHAKE_REQUIRED', 'invalid handshake: first request must be connect');
  const read = ConnectParams.safeParse(params);
  if (!read.success) return invalidParams('invalid connect params', read.error);
  const { minProtocol, maxProtocol } = read.data;
  if (minProtocol > protocolVersion || maxProtocol < protocolVersion)
    return new InterlaneError('PROTOCOL_MISMATCH', 'protocol mismatch', {
      details: { clientMinProtocol: minProtocol, clientMaxProtocol: maxProtocol, expectedProtocol: protocolVersion },
    });
  return read.data;
}

/** Clients stop reconnecting only on codes that they know, so each refusal has one. */
export function tokenRefusal(presented: string | undefined, why: 'wrong' | 'too many'): InterlaneError {
  const recommendedNextStep = 'update_auth_credentials';
  if (presented === undefined)
    return new InterlaneError('AUTH_TOKEN_MISSING', 'token is missing; give one in auth.token ("interlane token create" makes one)', {
      details: { authReason: 'token_missing', recommendedNextStep },
    });
  if (why === 'too many')
    return new InterlaneError('AUTH_RATE_LIMITED', 'too many wrong tokens from this address; wait a minute', {
      details: { authReason: 'rate_limited', recommendedNextStep: 'wait_then_retry' },
    });
  return new InterlaneError('AUTH_TOKEN_MISMATCH', 'token is wrong, ended or expired', {
    details: { authReason: 'token_mismatch', canRetryWithDeviceToken: false, recommendedNextStep },
  });
}

/** What the gateway says of itself in a hello. */
export type HelloFacts = Pick<HelloOk, 'server'> & { snapshot: Pick<HelloOk['snapshot'], 'uptimeMs' | 'sessionDefaults'> };

export function helloFor(caller: Caller, methods: string[], ok: boolean, { server, snapshot }: HelloFacts): HelloOk {
  return {
    type: 'hello-ok',
    protocol: protocolVersion,
    server,
    features: { methods, events: [...eventNames] },
    snapshot: { presence: [], health: { ok }, stateVersion: { presence: 0, health: 0 }, authMode: 'token', ...snapshot },
    auth: { role: caller.kind, scopes: [...caller.scopes] },
    policy: { maxPayload: frameLimitOf(caller), maxBufferedBytes: bufferLimit, tickIntervalMs },
  };
}
