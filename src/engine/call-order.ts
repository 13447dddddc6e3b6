// The transcript as a model is to see it. Results are stored as they come in; a model finds them in the order of its calls.
import type { PromptMessage } from './runner.ts';

/** Messages with the results of each step sorted by the index of their calls. Nothing else changes its place. */
export function inCallOrder(messages: PromptMessage[]): PromptMessage[] {
  const ordered: PromptMessage[] = [];
  for (let from = 0; from < messages.length;) {
    let to = from;
    while (messages[to]?.role === 'toolResult') to++;
    ordered.push(...messages.slice(from, to).toSorted((a, b) => placeOf(a) - placeOf(b)));
    if (to < messages.length) ordered.push(messages[to]!);
    from = to + 1;
  }
  return ordered;
}

/** Between two messages of another role there are results of one step only, so the index alone decides. */
const placeOf = ({ toolCallId = '' }: PromptMessage) => Number(toolCallId.slice(toolCallId.indexOf('.') + 1));
