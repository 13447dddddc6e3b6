// Messages of a transcript as a client shows them: who speaks, and the text.
import type { WireMessage } from '../protocol/result.ts';

/** The role, or the origin of a message that did not come from a user. */
export function speaker({ role, provenance, toolName }: WireMessage): string {
  if (role === 'toolResult') return `result of ${toolName ?? 'a tool'}`;
  if (role === 'user' && provenance?.sourceSession !== undefined) return `from ${provenance.sourceSession}`;
  if (role === 'user' && provenance?.kind !== undefined && provenance.kind !== 'user') return provenance.kind;
  return role;
}

/** The origin of a message that this client did not send. */
export function sourceOf(message: WireMessage): string {
  const who = speaker(message);
  const kind = message.provenance?.kind;
  if (who === 'user') return 'elsewhere';
  return kind === undefined || kind === 'inter_session' || kind === who ? who : `${kind} ${who}`;
}

/** What a client says about an answer that a rule withheld from its chat; undefined for every other message. */
export const withheldNote = ({ withheld }: WireMessage) => (withheld ? 'this answer was not delivered: a rule withheld it' : undefined);

/** Whether the message is a summary that replaces older messages for the model. */
export const isSummary = ({ summary }: WireMessage) => summary === true;

/** Whether the message has text of a user or an agent. Tool results and bare tool calls have none. */
export function isSaid({ role, content }: WireMessage): boolean {
  return role !== 'toolResult' && (typeof content === 'string' || content.length === 0 || content.some(({ type }) => type === 'text'));
}

/** The text of a message; with `tools`, a line for each tool call too. */
export function textOf({ content }: WireMessage, tools: boolean): string {
  if (typeof content === 'string') return content;
  return content
    .map((block) => {
      if (block.type === 'text') return block.text;
      return tools ? `→ ${block.name} ${JSON.stringify(block.arguments)}` : '';
    })
    .filter((text) => text !== '')
    .join('\n');
}

export const callsOf = ({ content }: WireMessage) =>
  typeof content === 'string' ? [] : content.flatMap((block) => (block.type === 'toolCall' ? [block] : []));
