// A question to `explain` → the rules' answer, with what is known of the sessions it names. The gateway and the command line ask here.
import type { z } from 'zod';
import { partyOfRow } from '../engine/policy.ts';
import type { Explanation } from '../protocol/decision.ts';
import type { ExplainAccess, ExplainKey, ExplainRoute, ExplainSend, ExplainTools } from '../protocol/explain.ts';
import type { SessionFacts } from '../protocol/session.ts';
import { partyOf, type World } from '../rules/decide.ts';
import { explainAccess, explainKey, explainRoute, explainSend, explainTools } from '../rules/explain.ts';
import type { Routes } from '../rules/route.ts';
import { join } from '../rules/taint.ts';
import type { SessionRow } from '../store/rows.ts';

export interface Knowledge {
  world: World;
  routes: Routes;
  /** The tools there are. */
  tools: Iterable<string>;
  /** The session of a store key. Absent where no sessions can be read: then the question's own facts are used. */
  session?(storeKey: string): Promise<SessionRow | undefined>;
  /** Runs a decision that looks at text. */
  decided<R>(decision: () => R): Promise<R> | R;
}

interface Questions {
  route: z.infer<typeof ExplainRoute>;
  key: z.infer<typeof ExplainKey>;
  send: z.infer<typeof ExplainSend>;
  access: z.infer<typeof ExplainAccess>;
  tools: z.infer<typeof ExplainTools>;
}
export type Topic = keyof Questions;

export const answers: { [T in Topic]: (question: Questions[T], known: Knowledge) => Promise<Explanation> } = {
  route: async (origin, { routes, session }) => {
    const { facts } = explainRoute(routes, origin, undefined);
    return explainRoute(routes, origin, session && (await session(String(facts['sessionKey']))) !== undefined);
  },
  key: async (question, known) => {
    const { facts } = explainKey(known.world, question, undefined);
    return explainKey(known.world, question, known.session && (await known.session(String(facts['sessionKey']))) !== undefined);
  },
  send: async (question, known) => {
    const { facts, exists } = await factsOf(known, question.session);
    return known.decided(() => explainSend(known.world, { ...question, session: facts }, exists));
  },
  access: async (question, known) => {
    const caller = await factsOf(known, question.caller);
    const { agent } = partyOf(known.world, caller.facts).key;
    const target = await factsOf(known, question.target, agent);
    const asked = { ...question, caller: caller.facts, target: target.facts };
    return known.decided(() => explainAccess(known.world, asked, { caller: caller.exists, target: target.exists }));
  },
  tools: async (question, known) => {
    const { facts, exists } = await factsOf(known, question.session);
    return explainTools(known.world, { ...question, session: facts }, known.tools, exists);
  },
};

/** The stored facts of a session; what the question says replaces them, but its levels can only raise the stored ones. */
async function factsOf(
  { world, session }: Knowledge,
  asked: SessionFacts,
  agent?: string,
): Promise<{ facts: SessionFacts; exists: boolean | undefined }> {
  const { storeKey } = partyOf(world, asked, agent);
  if (!session) return { facts: { ...asked, key: storeKey }, exists: undefined };
  const row = await session(storeKey);
  if (!row) return { facts: { ...asked, key: storeKey }, exists: false };
  const stored = partyOfRow(world, row).facts;
  const facts = {
    ...stored,
    ...asked,
    key: storeKey,
    taint: join(stored.taint, asked.taint),
    existTaint: join(stored.existTaint, asked.existTaint),
  };
  return { facts, exists: true };
}
