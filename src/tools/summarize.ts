// summarize: a summary of the session's own conversation, written by the session's own model. It reads nothing else.
import { z } from 'zod';
import type { PromptMessage } from '../engine/runner.ts';
import { readPrompt } from '../engine/turn.ts';
import { InterlaneError } from '../errors.ts';
import { defineTool } from './define.ts';

/** The most that it reads, from the end: entries, characters of one entry, and characters of all. */
const mostEntries = 500;
const longestText = 20_000;
const mostChars = 200_000;

export const summarize = defineTool({
  name: 'summarize',
  description: 'Summarize this conversation, for a handoff or a recap.',
  effect: 'pure',
  costs: true,
  params: z.strictObject({
    scope: z.enum(['session', 'topic']).optional().describe('all of it (default), or one topic'),
    topic: z.string().min(1).max(500).optional().describe('which topic (default: the latest)'),
  }),
  async run(context, args) {
    const { session, signal } = context;
    if (args.scope === 'session' && args.topic !== undefined)
      throw new InterlaneError('INVALID_REQUEST', 'topic goes with scope "topic"; leave one of them out');
    const scope = args.scope ?? (args.topic === undefined ? 'session' : 'topic');
    const all = await context.store.read(readPrompt, { sessionPk: session.pk, limit: mostEntries }, context);
    const spoken = withinSize(beforeThisCall(all).map(shorten));
    if (spoken.messages.length === 0) return { value: { scope, summary: '', note: 'nothing has been said yet' }, taint: session.taint };
    const { text, usage } = await context.recap(session, { scope, topic: args.topic }, spoken.messages, signal);
    const cut = spoken.cut || all.length === mostEntries ? { note: 'only the end of the conversation was read' } : {};
    return { value: { scope, summary: text.trim(), ...cut }, taint: session.taint, usage };
  },
});

/** Leaves out the step that makes this call. */
function beforeThisCall(prompt: PromptMessage[]): PromptMessage[] {
  const last = prompt.findLastIndex(({ role }) => role === 'assistant');
  const asks = prompt[last]?.content.some((block) => block.type === 'toolCall' && block.name === 'summarize');
  return asks ? prompt.slice(0, last) : prompt;
}

function shorten(message: PromptMessage): PromptMessage {
  const content = message.content.map((block) =>
    block.type === 'text' && block.text.length > longestText ? { ...block, text: `${block.text.slice(0, longestText)}…` } : block,
  );
  return { ...message, content };
}

function withinSize(prompt: PromptMessage[]): { messages: PromptMessage[]; cut: boolean } {
  let from = prompt.length;
  for (let room = mostChars; from > 0; from--) {
    room -= JSON.stringify(prompt[from - 1]!.content).length;
    if (room < 0 && from < prompt.length) break;
  }
  // A result without its call would have no meaning.
  while (from > 0 && prompt[from]?.role === 'toolResult') from++;
  return { messages: prompt.slice(from), cut: from > 0 };
}
