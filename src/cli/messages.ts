// Messages of a transcript as lines: one per message for programs, readable text for people.
import { speaker, textOf, withheldNote } from '../client/messages.ts';
import type { WireMessage } from '../protocol/result.ts';
import { oneLine, paint, visible, type Terminal } from './terminal.ts';

/** `before` is printed in front of the speaker: the session, where there are several. */
export function messageLine(terminal: Terminal, message: WireMessage, options: { tools: boolean; before?: string }): string {
  const text = textOf(message, options.tools);
  const before = options.before === undefined ? [] : [options.before];
  if (!terminal.stdout.isTTY)
    return `${[new Date(message.timestamp).toISOString(), ...before, speaker(message), text].map(oneLine).join('\t')}\n`;
  const note = withheldNote(message);
  return `${heading(terminal, message, options.before)}\n${indented(text)}\n${note === undefined ? '' : paint(terminal, 'gray', `  (${note})\n`)}`;
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
