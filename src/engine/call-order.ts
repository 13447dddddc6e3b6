// The transcript in the order for models. Results are stored in the order of arrival; a model reads them in the order of its calls.
import type { PromptMessage } from './runner.ts';

/** Messages with the results of each step sorted by the index of their calls. Other messages stay in place. */
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
