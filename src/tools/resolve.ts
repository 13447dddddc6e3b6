// From what a model wrote to the session it means, among those the caller may see.
import { isVisible, listSessions, scopeOfCaller } from '../engine/lists.ts';
import { InterlaneError } from '../errors.ts';
import { planReference, settleReference, type Lookup, type Reference } from '../rules/reference.ts';
import type { ReadQuery } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import type { ToolContext } from './define.ts';

/** One value from its two spellings; both at once with different values is a mistake, not a choice. */
export function oneOf(args: Record<string, unknown>, name: string, alias: string): string | undefined {
  const [first, second] = [args[name], args[alias]] as (string | undefined)[];
  if (first !== undefined && second !== undefined && first !== second)
    throw new InterlaneError('INVALID_REQUEST', `${name} and ${alias} are two names of one argument; give one`);
  return first ?? second;
}

export async function resolveSession(context: ToolContext, reference: Reference): Promise<SessionRow> {
  const planned = planReference(reference, context.session.agent, context.world.agents);
  if (!planned.ok) throw new InterlaneError(planned.code, planned.error);
  const found = await context.store.read(lookUp, { context, lookups: planned.plan.lookups });
  const known = found.flat().length > 0 ? [] : await visibleKeys(context);
  const settled = settleReference(
    planned.plan,
    found.map((rows) => rows.map((row) => ({ ...row, agent: row.agent }))),
    known,
  );
  if (!settled.ok) throw new InterlaneError(settled.code, settled.error);
  return settled.session;
}

const lookUp: ReadQuery<{ context: ToolContext; lookups: Lookup[] }, SessionRow[][]> = {
  name: 'look up session',
  *body(t, { context, lookups }) {
    const answers: SessionRow[][] = [];
    for (const lookup of lookups) {
      let rows: SessionRow[] = [];
      if (lookup.by === 'key') rows = yield* t.all<SessionRow>('SELECT * FROM sessions WHERE key = ? AND current = 1', lookup.key);
      else if (lookup.by === 'id') rows = yield* t.all<SessionRow>('SELECT * FROM sessions WHERE id = ? AND current = 1', lookup.id);
      else if (lookup.agentId === undefined)
        rows = yield* t.all<SessionRow>('SELECT * FROM sessions WHERE label = ? AND current = 1 LIMIT 50', lookup.label);
      else
        rows = yield* t.all<SessionRow>(
          'SELECT * FROM sessions WHERE agent = ? AND label = ? AND current = 1',
          lookup.agentId,
          lookup.label,
        );
      answers.push(rows.filter((row) => isVisible(context.world, context.caller, row)));
    }
    return answers;
  },
};

async function visibleKeys(context: ToolContext): Promise<string[]> {
  const scope = await context.store.read(scopeOfCaller, context);
  const { rows } = await context.store.read(listSessions, { scope, callerPk: context.session.pk, limit: 200 });
  return rows.map((row) => row.key);
}
