// session_status: the user, level, model, usage and activity of one session.
import { z } from 'zod';
import { levelName } from '../levels.ts';
import { byUser } from '../engine/policy.ts';
import type { ToolAnswer } from '../rules/tool-policy.ts';
import { describe, type Described } from '../sessions/describe.ts';
import { earlierLives, requireSession } from '../sessions/find.ts';
import { toolSession } from '../sessions/views.ts';
import type { ReadQuery } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import { usageOf } from '../store/views.ts';
import { alias, defineTool, lookOf, oneOf, type ToolContext } from './define.ts';

const mostLives = 20;

export const sessionStatus = defineTool({
  name: 'session_status',
  description: 'Show the status of a session: channel, level, model, usage, run, tools. Without arguments: your own.',
  effect: 'pure',
  params: z.strictObject({
    sessionKey: z.string().min(1).max(4096).optional().describe('session key or session id'),
    session_id: alias(z.string().min(1).max(4096)),
    verbose: z.boolean().optional().describe('all fields, and why each tool is given or not'),
  }),
  async run(context, args) {
    const asked = oneOf(args, 'sessionKey', 'session_id');
    const look = lookOf(context);
    const session = asked === undefined ? context.session : await context.store.read(requireSession(look), { session: asked }, context);
    const described = await context.store.read(describedWithWork(look), { session }, context);
    const { settings } = described;
    return {
      value: {
        ...toolSession(described, args.verbose),
        ...described.model,
        verboseLevelSource: byUser(settings.verboseLevel),
        authProfile: settings.authProfile,
        authProfileSource: byUser(settings.authProfile),
        usage: usageOf(session),
        taint: levelName(session.taint),
        createdAt: session.created_at,
        queued: described.queued,
        run: described.active,
        earlierLives: session.pk === context.session.pk ? await earlier(context, session) : undefined,
        ...toolsShown(context.toolsOf(session), args.verbose),
      },
      taint: session.level,
    };
  },
});

/** The earlier lives that its sessions_history can read, newest first. */
async function earlier(context: ToolContext, { key, life }: SessionRow): Promise<object[] | undefined> {
  if (life === 1) return undefined;
  const { rows } = await context.store.read(earlierLives(lookOf(context)), { key, before: life, limit: mostLives }, context);
  return rows.map((row) => ({
    life: row.life,
    sessionId: row.id,
    createdAt: row.created_at,
    updatedAt: row.last_at,
    messages: row.next_seq - 1,
  }));
}

/** The names of the tools that it gets, and why it does not get the others. */
function toolsShown(answers: ToolAnswer[], verbose = false): Record<string, unknown> {
  if (verbose) return { tools: answers.map(({ tool, allowed, why }) => ({ tool, allowed, why })) };
  const refused = answers.flatMap(({ tool, allowed, why }) => (allowed ? [] : [[tool, why]]));
  return {
    tools: answers.filter(({ allowed }) => allowed).map(({ tool }) => tool),
    ...(refused.length > 0 ? { toolsRefused: Object.fromEntries(refused) as object } : {}),
  };
}

const describedWithWork = (look: ReturnType<typeof lookOf>): ReadQuery<{ session: SessionRow }, Described> => ({
  name: 'session status',
  *body(t, { session }) {
    return (yield* describe(t, look, [session], { work: true, usualModel: true }))[0]!;
  },
});
