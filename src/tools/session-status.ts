// session_status: what is known of one session: whose it is, its level, its model, what it is doing.
import { z } from 'zod';
import { levelName } from '../levels.ts';
import { byUser, settingsOf } from '../engine/policy.ts';
import type { ToolAnswer } from '../rules/tool-policy.ts';
import type { ReadQuery } from '../store/contract.ts';
import type { RunRow } from '../store/rows.ts';
import { usageOf } from '../store/views.ts';
import { alias, defineTool } from './define.ts';
import { oneOf, resolveSession } from './resolve.ts';
import { sessionView } from './sessions-list.ts';

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
    const session = asked === undefined ? context.session : await resolveSession(context, { session: asked });
    const { active, queued } = await context.store.read(laneOf, { lane: session.key });
    const settings = settingsOf(session);
    const live = active ? { runId: active.id, state: active.state, since: active.started_at } : undefined;
    return {
      value: {
        ...sessionView(context, session, args.verbose),
        ...context.engine.modelOf(session),
        verboseLevelSource: byUser(settings.verboseLevel),
        authProfile: settings.authProfile,
        authProfileSource: byUser(settings.authProfile),
        usage: usageOf(session),
        user: session.user ?? undefined,
        taint: levelName(session.taint),
        createdAt: session.created_at,
        queued,
        run: live,
        ...toolsShown(context.toolsOf(session), args.verbose),
      },
      taint: session.level,
    };
  },
});

/** The names of those it gets, and why not the others. */
function toolsShown(answers: ToolAnswer[], verbose = false): Record<string, unknown> {
  if (verbose) return { tools: answers.map(({ tool, allowed, why }) => ({ tool, allowed, why })) };
  const refused = answers.flatMap(({ tool, allowed, why }) => (allowed ? [] : [[tool, why]]));
  return {
    tools: answers.filter(({ allowed }) => allowed).map(({ tool }) => tool),
    ...(refused.length > 0 ? { toolsRefused: Object.fromEntries(refused) as object } : {}),
  };
}

const laneOf: ReadQuery<{ lane: string }, { active: RunRow | undefined; queued: number }> = {
  name: 'lane',
  *body(t, { lane }) {
    const active = yield* t.one<RunRow>(`SELECT * FROM runs WHERE lane = ? AND state IN ('running', 'waiting')`, lane);
    const waiting = yield* t.one<{ n: number }>(
      `SELECT count(*) AS n FROM (SELECT 1 FROM runs WHERE lane = ? AND state = 'queued' LIMIT 1000)`,
      lane,
    );
    return { active, queued: waiting!.n };
  },
};
