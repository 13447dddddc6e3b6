// Messages of a transcript as lines: one per message for programs, readable text for people.
import type { WireMessage } from '../protocol/result.ts';
import { oneLine, paint, visible, type Terminal } from './terminal.ts';

/** Who speaks: the role, or where a message came from. */
export function speaker({ role, provenance, toolName }: WireMessage): string {
  if (role === 'toolResult') return `result of ${toolName ?? 'a tool'}`;
  if (role === 'user' && provenance?.sourceSession !== undefined) return `from ${provenance.sourceSession}`;
  if (role === 'user' && provenance?.kind !== undefined && provenance.kind !== 'user') return provenance.kind;
  return role;
}

/** What was said before, in short, in the place of a conversation that had grown too long. */
export const isSummary = ({ role, provenance }: WireMessage) => role === 'user' && provenance?.kind === 'system';

/** The words of a message; calls of tools too, if they are wanted. */
export function wordsOf({ content }: WireMessage, tools: boolean): string {
  if (typeof content === 'string') return content;
  return content
    .map((block) => {
      if (block.type === 'text') return block.text;
      return tools ? `→ ${block.name} ${JSON.stringify(block.arguments)}` : '';
    })
    .filter((text) => text !== '')
    .join('\n');
}

/** `before` stands in front of the speaker: the session, when several are shown. */
export function messageLine(terminal: Terminal, message: WireMessage, options: { tools: boolean; before?: string }): string {
  const text = wordsOf(message, options.tools);
  const before = options.before === undefined ? [] : [options.before];
  if (!terminal.stdout.isTTY)
    return `${[new Date(message.timestamp).toISOString(), ...before, speaker(message), text].map(oneLine).join('\t')}\n`;
  return `${heading(terminal, message, options.before)}\n${indented(text)}\n`;
}

export function heading(
  terminal: Terminal,
  message: Pick<WireMessage, 'timestamp' | 'role'> & Partial<WireMessage>,
  before?: string,
): string {
  const time = new Date(message.timestamp).toLocaleTimeString('sv');
  const who = speaker(message as WireMessage);
  const style = message.role === 'assistant' ? 'green' : message.role === 'user' ? 'cyan' : 'gray';
  const session = before === undefined ? '' : `${oneLine(before)}  `;
  return `${paint(terminal, 'gray', time)}  ${session}${paint(terminal, style, oneLine(who))}`;
}

const indented = (text: string) =>
  visible(text)
    .split('\n')
    .map((line) => `  ${line}`)
    .join('\n');
