// Handlers of tokens and guests: who may connect.
import { settingsOf } from '../../engine/policy.ts';
import { InterlaneError, reservedName } from '../../errors.ts';
import { guestSentence } from '../../wording.ts';
import { agentId as agentIdOf } from '../../protocol/ids.ts';
import type { access as table } from '../../protocol/operations/access.ts';
import { requireLevel, requireTime } from '../rights.ts';
import type { Context, Handlers } from './context.ts';

export function accessHandlers(context: Context): Handlers<keyof typeof table> {
  const { parts, world, asker, need } = context;
  const { sessions, auth } = context.parts;
  return {
    'guests.join': async ({ name, agentId, see, rotate }, call) => {
      const agent = agentId === undefined ? world().agents.defaultId : agentIdOf(agentId);
      const tokenName = `guest:${agent}:${name}`;
      const joined = await auth.has(tokenName, call.caller.level);
      if (joined === 'hidden') throw reservedName('guest', name);
      if (joined && !rotate)
        throw new InterlaneError(
          'TOKEN_EXISTS',
          `guest "${name}" of agent "${agent}" has joined already; choose another name, or rotate to give it a new token and end the old one`,
        );
      // By default a guest sees the least; one that gets a new token keeps its visibility.
      const { session, created } = await sessions
        .join(asker(call), { name, agentId, see: see ?? (joined ? undefined : 'tree') })
        .catch((thrown: unknown) => {
          throw thrown instanceof InterlaneError && thrown.code === 'SESSION_KEY_RESERVED' ? reservedName('guest', name) : thrown;
        });
      const { level, expiresAt } = call.caller;
      const wish = { name: tokenName, kind: 'session' as const, scopes: [], level, sessionKey: session.key, expiresAt, by: level };
      const { token } = joined ? await auth.rotate(tokenName, call.caller) : await auth.create(wish);
      return {
        key: session.key,
        sessionId: session.id,
        created,
        see: settingsOf(session).see ?? world().visibility,
        token,
        tokenName,
        url: parts.mcpUrl(),
        sentence: guestSentence(session.key),
      };
    },

    'tokens.list': async (_, { caller }) => ({ tokens: await auth.list(caller.level) }),
    'tokens.create': async ({ name, scopes, level, sessionKey, expiresInSeconds }, call) => {
      const expiresAt = expiresInSeconds === undefined ? call.caller.expiresAt : parts.now() + expiresInSeconds * 1000;
      requireTime(call.caller.expiresAt, expiresAt, `token "${name}"`);
      if (sessionKey === undefined) {
        requireLevel(call.caller.level, level ?? call.caller.level, `token "${name}"`);
        const rights = { scopes: scopes ?? ['operator.read' as const], level: level ?? call.caller.level };
        return auth.create({ name, kind: 'operator', ...rights, expiresAt, by: call.caller.level });
      }
      if (scopes || level)
        throw new InterlaneError('INVALID_REQUEST', 'token bound to a session has no scopes or level of its own; leave them out');
      const row = await need(call, { session: sessionKey });
      return auth.create({
        name,
        kind: 'session',
        scopes: [],
        level: call.caller.level,
        sessionKey: row.key,
        expiresAt,
        by: call.caller.level,
      });
    },
    'tokens.signIn': async (_, { caller }) => {
      const { code, expiresAt } = auth.signInCode(caller);
      return { url: parts.signInUrl(code), expiresAt };
    },
    'tokens.rotate': ({ name }, { caller }) => auth.rotate(name, caller),
    'tokens.revoke': async ({ name }, { caller }) => ({ revoked: await auth.revoke(name, caller.level), name }),
  };
}
