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
    'explain.route': async (question) => explainRoute(parts.current().routes, question),
    'explain.key': async (question) => explainKey(world(), question),
    'explain.send': (question) => parts.verdicts.run(() => explainSend(world(), question)),
    'explain.access': async (question, call) => {
      // The visibility that an operator granted to a session counts, also if the question does not name it.
      const { caller } = question;
      const row = caller.see === undefined ? await find(call, { session: caller.key }).catch(() => undefined) : undefined;
      const see = row && settingsOf(row).see;
      const known = see === undefined ? question : { ...question, caller: { ...caller, see } };
      return parts.verdicts.run(() => explainAccess(world(), known));
    },
    'explain.tools': async (question, call) => {
      // For a session that exists, the gateway adds what the question leaves out: level, parent, depth, channel.
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
