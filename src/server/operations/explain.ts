// Handlers of `explain.*`: the rules answer, with what the gateway knows of the sessions in question.
import { partyOfRow, settingsOf } from '../../engine/policy.ts';
import { levelName } from '../../levels.ts';
import type { explain as table } from '../../protocol/operations/explain.ts';
import { explainAccess, explainKey, explainRoute, explainSend, explainTools } from '../../rules/explain.ts';
import { join } from '../../rules/taint.ts';
import type { Context, Handlers } from './context.ts';

export function explainHandlers(context: Context): Handlers<keyof typeof table> {
  const { parts, world, find } = context;
  return {
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
