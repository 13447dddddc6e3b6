// Handlers of `explain.*`: the rules answer, with what the gateway knows of the sessions in question.
import type { explain as table } from '../../protocol/operations/explain.ts';
import { answers, type Knowledge } from '../../sessions/explain.ts';
import type { Call, Context, Handlers } from './context.ts';

export function explainHandlers({ parts, find }: Context): Handlers<keyof typeof table> {
  const known = (call: Call): Knowledge => ({
    ...parts.current(),
    tools: parts.invoker.names(),
    session: (key) => find(call, { session: key }),
    decided: (decision) => parts.verdicts.run(decision),
  });
  return {
    'explain.route': (question, call) => answers.route(question, known(call)),
    'explain.key': (question, call) => answers.key(question, known(call)),
    'explain.send': (question, call) => answers.send(question, known(call)),
    'explain.access': (question, call) => answers.access(question, known(call)),
    'explain.tools': (question, call) => answers.tools(question, known(call)),
  };
}
