// Which session a caller means: text or label → what to look up → the one session it may see, or an answer that gives nothing away.
import { nearest } from '../nearest.ts';
import { type ErrorCode } from '../errors.ts';
import { agentId as agentIdOf, isIdToken } from '../protocol/ids.ts';
import { keyContext, type AgentTable } from './agents.ts';
import { formatSessionKey, parseSessionKey } from './session-key.ts';

/** What a caller wrote: a key, a request key, `main` or a session id; or a label; or how a session id begins. */
export interface Reference {
  session?: string | undefined;
  label?: string | undefined;
  shortId?: string | undefined;
  agentId?: string | undefined;
}

/** How a door reads references. The doors differ in these points and in no other. */
export interface ReferenceStyle {
  /** Blanks around a text do not count. */
  trims: boolean;
  /** Words that name no session here. */
  reserved: readonly string[];
  /** `label`: agentId narrows a label and must be an id as it is. `any`: it also says whose bare keys are meant, and is repaired. */
  agentIdWith: 'label' | 'any';
  /** A text with a colon is tried as a session id, too. */
  idsHaveColons: boolean;
  /** Suggestions are near the text as it was written, or near the key that it means. */
  suggestsBy: 'text' | 'key';
  missing(asked: string, near: string[]): string;
}

/** For models, which write keys as they find them. */
export const toolReferences: ReferenceStyle = {
  trims: true,
  reserved: ['global', 'unknown'],
  agentIdWith: 'label',
  idsHaveColons: false,
  suggestsBy: 'text',
  missing(asked, near) {
    const advice =
      near.length > 0 ? `did you mean ${near.map((key) => `"${key}"`).join(', ')}?` : 'see sessions_list for the sessions you can reach';
    return `session ${asked} was not found among the sessions you can see; ${advice}`;
  },
};

/** For clients of operators, which name their agent beside the key. */
export const operatorReferences: ReferenceStyle = {
  trims: false,
  reserved: [],
  agentIdWith: 'any',
  idsHaveColons: true,
  suggestsBy: 'key',
  missing: (asked, near) =>
    `session ${asked} was not found${near.length > 0 ? `; did you mean ${near.join(' or ')}?` : '; see sessions.list'}`,
};

/** What to look up, in order. Each look-up is by one exact value or prefix, so a store answers it from an index. */
export type Lookup =
  | { by: 'key'; key: string }
  | { by: 'id'; id: string }
  | { by: 'label'; label: string; agentId: string | undefined }
  | { by: 'shortId'; shortId: string };

/** `asked` is what the caller wrote, for messages: a look-up may hold a key the caller never sees. */
export interface ReferencePlan {
  asked: string;
  lookups: Lookup[];
  /** Why the text is no key. It is the answer if the text is nothing else, either. */
  unusable?: Refusal;
}

export type Refusal = { ok: false; code: ErrorCode; error: string };

/** `agent`: whose sessions bare keys are, unless the reference says so itself. */
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
  if (label) return { ok: true, plan: { asked: label, lookups: [{ by: 'label', label, agentId: agentId || undefined }] } };
  if (shortId) return { ok: true, plan: { asked: shortId, lookups: [{ by: 'shortId', shortId }] } };
  const word = session!.toLowerCase();
  if (style.reserved.includes(word))
    return refuse('SESSION_KEY_RESERVED', `session "${word}" is reserved; use "main" or a key from sessions_list`);
  const parsed = parseSessionKey(session!, keyContext(agents, agentId || agent));
  const plan: ReferencePlan = { asked: session!, lookups: [] };
  if (parsed.ok) plan.lookups.push({ by: 'key', key: formatSessionKey(parsed.key) });
  // In tools only a single word can be a session id; everything else is a key and nothing but a key.
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
 * Chooses among what the look-ups found. `found[i]` answers `lookups[i]` and holds **only sessions the caller may see**, so
 * a hidden session and a missing one take the same path here and give the same answer. `known` are visible keys to suggest from.
 */
export function settleReference<C extends Candidate>(
  plan: ReferencePlan,
  found: C[][],
  known: string[],
  style: ReferenceStyle = toolReferences,
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
  if (plan.unusable) return plan.unusable;
  const [first] = plan.lookups;
  const text = style.suggestsBy === 'key' && first?.by === 'key' ? first.key : plan.asked;
  return refuse('SESSION_NOT_FOUND', style.missing(asked, nearest(text, known, 3)));
}

function refuse(code: ErrorCode, error: string): Refusal {
  return { ok: false, code, error };
}
