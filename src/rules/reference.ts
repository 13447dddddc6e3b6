// Which session a caller means: text or label → look-ups → the one visible session, or an error that does not reveal hidden ones.
import { type ErrorCode } from '../errors.ts';
import { agentId as agentIdOf, isIdToken } from '../protocol/ids.ts';
import { contradiction, keyContext, type AgentTable } from './agents.ts';
import { formatSessionKey, parseSessionKey } from './session-key.ts';

/** A reference as written: a key, a request key, `main` or a session id; or a label; or the start of a session id. */
export interface Reference {
  session?: string | undefined;
  label?: string | undefined;
  shortId?: string | undefined;
  agentId?: string | undefined;
}

/** How a caller's references are read. Tools and operators differ only in these points. */
export interface ReferenceStyle {
  /** Spaces around a text are ignored. */
  trims: boolean;
  /** Words that name no session here. */
  reserved: readonly string[];
  /** `label`: agentId narrows a label and must be a valid id. `any`: it also names the agent of bare keys, and is normalized. */
  agentIdWith: 'label' | 'any';
  /** A text with a colon is also tried as a session id. */
  idsHaveColons: boolean;
  missing(written: string, near: string[]): string;
}

/** For models, which copy keys from results. */
export const toolReferences: ReferenceStyle = {
  trims: true,
  reserved: ['global', 'unknown'],
  agentIdWith: 'label',
  idsHaveColons: false,
  missing(written, near) {
    const advice =
      near.length > 0
        ? `did you mean ${near.map((key) => JSON.stringify(key)).join(', ')}?`
        : 'see sessions_list for the sessions you can reach';
    return `session ${written} was not found among the sessions you can see; ${advice}`;
  },
};

/** For clients of operators, which name their agent beside the key. */
export const operatorReferences: ReferenceStyle = {
  trims: false,
  reserved: [],
  agentIdWith: 'any',
  idsHaveColons: true,
  missing: (written, near) =>
    `session ${written} was not found${near.length > 0 ? `; did you mean ${near.join(' or ')}?` : '; see sessions.list'}`,
};

/** The look-ups, in order. Each is by one exact value or prefix, so a store answers it from an index. */
export type Lookup =
  | { by: 'key'; key: string }
  | { by: 'id'; id: string }
  | { by: 'label'; label: string; agentId: string | undefined }
  | { by: 'shortId'; shortId: string };

/** `written` is the reference as written, for messages: a look-up may contain a key that the caller must not see. */
export interface ReferencePlan {
  written: string;
  /** The agent that was named beside a key or a session id. */
  agentId?: string | undefined;
  lookups: Lookup[];
  /** Why the text is not a key. It becomes the error if no other look-up finds a session. */
  unusable?: Refusal;
}

export type Refusal = { ok: false; code: ErrorCode; error: string };

/** `agent`: the agent of bare keys, unless the reference names one. */
export function planReference(
  reference: Reference,
  agent: string,
  agents: AgentTable,
  style: ReferenceStyle = toolReferences,
): { ok: true; plan: ReferencePlan } | Refusal {
  const [session, label, shortId] = [reference.session, reference.label, reference.shortId].map((text) =>
    style.trims ? text?.trim() : text,
  );
  if ([session, label, shortId].filter(Boolean).length !== 1)
    return refuse('INVALID_REQUEST', 'session reference needs either sessionKey or label, not both and not neither');
  const strict = style.agentIdWith === 'label';
  const named = reference.agentId?.trim();
  if (strict && named && !label) return refuse('INVALID_REQUEST', 'agentId goes with label only; a session key names its agent itself');
  if (strict && named && !isIdToken(named.toLowerCase()))
    return refuse('INVALID_REQUEST', `agentId ${JSON.stringify(named.slice(0, 100))} is not an agent id`);
  const agentId = strict ? named && agentIdOf(named) : reference.agentId === undefined ? undefined : agentIdOf(reference.agentId);
  if (label) return { ok: true, plan: { written: label, lookups: [{ by: 'label', label, agentId: agentId || undefined }] } };
  if (shortId) return { ok: true, plan: { written: shortId, lookups: [{ by: 'shortId', shortId }] } };
  const word = session!.toLowerCase();
  if (style.reserved.includes(word))
    return refuse('SESSION_KEY_RESERVED', `session "${word}" is reserved; use "main" or a key from sessions_list`);
  const parsed = parseSessionKey(session!, keyContext(agents, agentId || agent));
  const wrong = parsed.ok ? contradiction(agentId || undefined, parsed.key.agent, 'key') : undefined;
  if (wrong !== undefined) return refuse('INVALID_REQUEST', wrong);
  const plan: ReferencePlan = { written: session!, agentId: agentId || undefined, lookups: [] };
  if (parsed.ok) plan.lookups.push({ by: 'key', key: formatSessionKey(parsed.key) });
  // In tools only a single word can be a session id; any other text is a key.
  const compound = session!.includes(':');
  if (style.idsHaveColons || !compound) plan.lookups.push({ by: 'id', id: session! });
  if (!parsed.ok && compound)
    plan.unusable = refuse(parsed.code, `session key ${JSON.stringify(session!.slice(0, 200))} is not usable: ${parsed.why}`);
  return plan.unusable && plan.lookups.length === 0 ? plan.unusable : { ok: true, plan };
}

export interface Candidate {
  key: string;
  agent: string;
}

/**
 * Chooses among the results of the look-ups. `found[i]` answers `lookups[i]` and has **only sessions that the caller may see**, so
 * a hidden session and a missing one take the same path here and give the same answer. `similar` has what to suggest, by the same rule.
 */
export function settleReference<C extends Candidate>(
  plan: ReferencePlan,
  found: C[][],
  similar: string[],
  style: ReferenceStyle = toolReferences,
): { ok: true; session: C } | Refusal {
  const written = JSON.stringify(plan.written.slice(0, 200));
  for (const [index, lookup] of plan.lookups.entries()) {
    const hits = found[index] ?? [];
    if (hits.length === 1) return { ok: true, session: hits[0]! };
    if (hits.length > 1) {
      const agents = [...new Set(hits.map((hit) => hit.agent))].toSorted();
      const advice = lookup.by === 'label' ? `add agentId (one of: ${agents.join(', ')})` : 'use the full session key';
      return refuse('SESSION_AMBIGUOUS', `session ${written} matches ${hits.length} sessions; ${advice}`);
    }
  }
  if (plan.unusable) return plan.unusable;
  return refuse('SESSION_NOT_FOUND', style.missing(written, similar));
}

function refuse(code: ErrorCode, error: string): Refusal {
  return { ok: false, code, error };
}
