// Which session a caller means: text or label → what to look up → the one session it may see, or an answer that gives nothing away.
import { nearest } from '../nearest.ts';
import { type ErrorCode } from '../errors.ts';
import { agentId as agentIdOf, isIdToken } from '../protocol/ids.ts';
import { keyContext, type AgentTable } from './agents.ts';
import { formatSessionKey, parseSessionKey } from './session-key.ts';

/** What a caller wrote: a key, a request key, `main` or a session id; or a label, which an agent id may narrow. */
export interface Reference {
  session?: string | undefined;
  label?: string | undefined;
  agentId?: string | undefined;
}

/** What to look up, in order. Each look-up is by one exact value, so a store answers it from an index. */
export type Lookup = { by: 'key'; key: string } | { by: 'id'; id: string } | { by: 'label'; label: string; agentId: string | undefined };

/** `asked` is what the caller wrote, for messages: a look-up may hold a key the caller never sees. */
export interface ReferencePlan {
  asked: string;
  lookups: Lookup[];
}

export type Refusal = { ok: false; code: ErrorCode; error: string };

export function planReference(reference: Reference, caller: string, agents: AgentTable): { ok: true; plan: ReferencePlan } | Refusal {
  const session = reference.session?.trim();
  const label = reference.label?.trim();
  if ((session ? 1 : 0) + (label ? 1 : 0) !== 1) {
    return refuse('INVALID_REQUEST', 'session reference needs either sessionKey or label, not both and not neither');
  }
  if (label) {
    const agent = reference.agentId?.trim();
    if (agent && !isIdToken(agent.toLowerCase()))
      return refuse('INVALID_REQUEST', `agentId ${JSON.stringify(agent.slice(0, 100))} is not an agent id`);
    const lookups: Lookup[] = [{ by: 'label', label, agentId: agent ? agentIdOf(agent) : undefined }];
    return { ok: true, plan: { asked: label, lookups } };
  }
  if (reference.agentId?.trim()) return refuse('INVALID_REQUEST', 'agentId goes with label only; a session key names its agent itself');
  const word = session!.toLowerCase();
  if (word === 'global' || word === 'unknown') {
    return refuse('SESSION_KEY_RESERVED', `session "${word}" is reserved; use "main" or a key from sessions_list`);
  }
  const parsed = parseSessionKey(session!, keyContext(agents, caller));
  const lookups: Lookup[] = [];
  if (parsed.ok) lookups.push({ by: 'key', key: formatSessionKey(parsed.key) });
  // Only a single word can be a session id; everything else is a key and nothing but a key.
  if (!session!.includes(':')) lookups.push({ by: 'id', id: session! });
  if (!parsed.ok && lookups.length === 0)
    return refuse(parsed.code, `session key ${JSON.stringify(session!.slice(0, 200))} is not usable: ${parsed.why}`);
  return { ok: true, plan: { asked: session!, lookups } };
}

export interface Candidate {
  key: string;
  agent: string;
}

/**
 * Chooses among what the look-ups found. `found[i]` answers `lookups[i]` and holds **only sessions the caller may see**, so
 * a hidden session and a missing one take the same path here and give the same answer. `known` are visible keys to suggest from.
 */
export function settleReference<C extends Candidate>(
  plan: ReferencePlan,
  found: C[][],
  known: string[],
): { ok: true; session: C } | Refusal {
  const asked = JSON.stringify(plan.asked.slice(0, 200));
  for (const [index, lookup] of plan.lookups.entries()) {
    const hits = found[index] ?? [];
    if (hits.length === 1) return { ok: true, session: hits[0]! };
    if (hits.length > 1) {
      const agents = [...new Set(hits.map((hit) => hit.agent))].toSorted();
      const advice = lookup.by === 'label' ? `add agentId (one of: ${agents.join(', ')})` : 'use the full session key';
      return refuse('SESSION_AMBIGUOUS', `session ${asked} matches ${hits.length} sessions; ${advice}`);
    }
  }
  const near = nearest(plan.asked, known, 3);
  const advice =
    near.length > 0 ? `did you mean ${near.map((key) => `"${key}"`).join(', ')}?` : 'see sessions_list for the sessions you can reach';
  return refuse('SESSION_NOT_FOUND', `session ${asked} was not found among the sessions you can see; ${advice}`);
}

function refuse(code: ErrorCode, error: string): Refusal {
  return { ok: false, code, error };
}
