// Handlers about the gateway itself: health, status, agents, tools, explanations.
import { createHash } from 'node:crypto';
import { levelName } from '../../levels.ts';
import type { Engine } from '../../engine/engine.ts';
import { partyOfRow, settingsOf } from '../../engine/policy.ts';
import { InterlaneError } from '../../errors.ts';
import { agentOf, keyContext } from '../../rules/agents.ts';
import { explainAccess, explainKey, explainRoute, explainSend, explainTools } from '../../rules/explain.ts';
import { join, mayFlow } from '../../rules/taint.ts';
import { keyMeant } from '../../sessions/find.ts';
import { counts } from '../../sessions/runs.ts';
import { requireScope } from '../auth.ts';
import { type Desk, type Handlers } from './desk.ts';

export function systemMethods(
  desk: Desk,
): Handlers<
  | 'health'
  | 'status'
  | 'agents.list'
  | 'tools.invoke'
  | 'explain.route'
  | 'explain.key'
  | 'explain.send'
  | 'explain.access'
  | 'explain.tools'
> {
  const { parts, world, mainOf, need, find } = desk;
  const { store, engine } = desk.parts;
  return {
    health: async () => {
      const before = parts.elapsed();
      await parts.position();
      return { ok: true, ts: parts.now(), durationMs: Math.round(parts.elapsed() - before) };
    },
    status: async () => ({
      ...parts.facts(),
      ...(await store.read(counts, {})),
      defaultAgentId: world().agents.defaultId,
      agents: agentIds(engine).length,
    }),
    'agents.list': async () => {
      const { agents } = world();
      const { mainKey: name, globalOwner } = keyContext(agents, agents.defaultId);
      return {
        defaultId: agents.defaultId,
        mainKey: name,
        scope: globalOwner === undefined ? 'per-sender' : 'global',
        agents: agentIds(engine).map((id) => {
          const { name: shown } = agentOf(agents, id);
          return { id, ...(shown === undefined ? {} : { name: shown }), mainSessionKey: mainOf(id) };
        }),
      };
    },

    'tools.invoke': async ({ tool, args, sessionKey, idempotencyKey }, call) => {
      const { caller } = call;
      const own = caller.kind === 'session';
      if (!own) requireScope(caller, 'operator.read', 'tools.invoke');
      if (own && sessionKey !== undefined && keyMeant(world(), { session: sessionKey }) !== caller.sessionKey)
        throw new InterlaneError('MISSING_SCOPE', 'sessionKey is not the session this token is bound to; leave it out');
      // An operator looks through the eyes of a session, at what that session may see and the token's level allows.
      const bound = () => find(call, { session: caller.sessionKey! });
      const row = own ? await bound() : await need(call, { session: sessionKey ?? 'main' });
      if (!row) throw new InterlaneError('SESSION_NOT_FOUND', `session ${caller.sessionKey!} of this token is gone; make a new token`);
      const callId = idempotencyKey === undefined ? parts.newId() : hash(`${caller.name}\n${idempotencyKey}`);
      const answer = await parts.invoker.callAs(row.pk, { tool, args, callId, readOnly: !own }, call.signal);
      // In a turn a result raises the session that reads it. Out here nothing would, so what is above the reader is withheld (I8).
      // The session may have been raised meanwhile, by a message that the call waited for.
      const level = own ? levelName(((await bound()) ?? row).taint) : caller.level;
      if (!mayFlow(levelName(answer.taint), level))
        throw new InterlaneError(
          'POLICY_BLOCKED',
          `result of ${tool} is ${levelName(answer.taint)}, above the ${level} of its reader; let a run read it`,
        );
      return { ok: !answer.isError, tool, result: parsed(answer.text) };
    },
    'explain.route': async (question) => explainRoute(parts.routes(), question),
    'explain.key': async (question) => explainKey(world(), question),
    'explain.send': async (question) => explainSend(world(), question),
    'explain.access': async (question, call) => {
      // What the operator granted a session is part of the answer, also when the question does not know of it.
      const { caller } = question;
      const row = caller.see === undefined ? await find(call, { session: caller.key }).catch(() => undefined) : undefined;
      const see = row && settingsOf(row).see;
      return explainAccess(world(), see === undefined ? question : { ...question, caller: { ...caller, see } });
    },
    'explain.tools': async (question, call) => {
      // Of a session that is there, what the question does not say is known: its level, who spawned it, how deep, on which channel.
      const { session } = question;
      const row = await find(call, { session: session.key }).catch(() => undefined);
      const known = row && {
        ...partyOfRow(world(), row).facts,
        ...session,
        taint: join(levelName(row.taint), session.taint),
      };
      return explainTools(world(), { ...question, session: known ?? session }, parts.invoker.names());
    },
  };
}

/** What a tool answers is JSON, or plain text. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const agentIds = (engine: Engine) => [...new Set([engine.world.agents.defaultId, ...engine.world.agents.byId.keys()])];

const hash = (text: string) => createHash('sha256').update(text).digest('base64url').slice(0, 22);
