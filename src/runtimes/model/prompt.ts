// The transcript → the messages of a provider. Each call is followed by its result, and lines of the gateway say who speaks.
import type { ModelMessage } from 'ai';
import type { PromptMessage } from '../../engine/runner.ts';
import {
  beginningCut,
  contextText,
  gatewayLine,
  missingResult,
  named,
  provenanceLine,
  quote,
  quoteAll,
  summaryHeading,
  summaryRequest,
  withheldLine,
} from '../../wording.ts';

/**
 * A conversation to summarise, as one text: its calls then need no tool definitions and it can be cut anywhere. Only gateway lines name
 * the speaker, because any text could contain a plain "User:".
 */
export function summaryMessages(prompt: PromptMessage[], request = summaryRequest): ModelMessage[] {
  const parts = prompt.map((message) => {
    if (message.role === 'user') return isFromUser(message) ? `${gatewayLine('User')}\n${userText(message)}` : userText(message);
    if (message.role === 'toolResult')
      return `${gatewayLine(`Result of ${named(message.toolName ?? 'a tool')}`)}\n${quote(textOf(message))}`;
    const text = quote(textOf(message));
    const calls = message.content.filter((block) => block.type === 'toolCall');
    return [
      ...(text === '' && calls.length > 0 ? [] : [`${gatewayLine('You')}\n${text}`]),
      ...calls.map((call) => `${gatewayLine(`You called ${named(call.name)}`)}\n${quote(JSON.stringify(call.arguments))}`),
    ].join('\n');
  });
  return [{ role: 'user', content: [...parts, request].join('\n\n') }];
}

/** The transcript as a provider accepts it: each call is followed by its results, and no message is empty. */
export function modelMessages(prompt: PromptMessage[], provider: string): ModelMessage[] {
  const results = resultsByCall(prompt);
  const messages: ModelMessage[] = [];
  for (const [index, message] of prompt.entries()) {
    if (message.role === 'user') messages.push({ role: 'user', content: afterWithheld(prompt[index - 1], userText(message)) });
    else if (message.role === 'assistant')
      messages.push(...assistantMessages(message, provider, (call) => results.get(`${index}/${call}`)));
  }
  // A service refuses a conversation that does not start with a user message.
  if (messages[0] && messages[0].role !== 'user') messages.unshift({ role: 'user', content: beginningCut });
  return messages;
}

/** The model must not believe that its user has read an answer that a rule withheld. */
const afterWithheld = (before: PromptMessage | undefined, text: string) => (before?.withheld ? `${withheldLine}\n${text}` : text);

/** `userText` marks the others: from another session, from the gateway, or a summary. */
const isFromUser = ({ provenance, summary }: PromptMessage) => !summary && (provenance === undefined || provenance.kind === 'user');

function userText(message: PromptMessage): string {
  const { provenance, context, summary } = message;
  const text = quote(textOf(message));
  if (summary) return `${summaryHeading}\n${text}`;
  // The gateway wrote the text of an announce turn; as a line of its own it cannot be confused with the reply above it.
  if (typeof context === 'object') return `${contextText(context)}\n${context.kind === 'announce' ? gatewayLine(text) : text}`;
  const lines = [provenanceLine(provenance), context === undefined ? undefined : quote(context), text];
  return lines.filter((line) => line !== undefined).join('\n');
}

/** Call ids repeat in every run, so a result belongs to the nearest call before it. */
function resultsByCall(prompt: PromptMessage[]): Map<string, PromptMessage> {
  const owner = new Map<string, number>();
  const results = new Map<string, PromptMessage>();
  for (const [index, message] of prompt.entries()) {
    for (const block of message.content) if (block.type === 'toolCall') owner.set(block.id, index);
    if (message.role !== 'toolResult' || message.toolCallId === undefined) continue;
    const at = owner.get(message.toolCallId);
    if (at !== undefined) results.set(`${at}/${message.toolCallId}`, message); // otherwise its call is not part of this prompt
  }
  return results;
}

function assistantMessages(
  message: PromptMessage,
  provider: string,
  resultOf: (call: string) => PromptMessage | undefined,
): ModelMessage[] {
  const text = quote(textOf(message));
  const calls = message.content.filter((block) => block.type === 'toolCall');
  const thoughts = (message.reasoning ?? []).filter((thought) => thought.provider === provider);
  const silent = text.trim() === '';
  if (silent && calls.length === 0) return [];
  const id = (call: string) => `call_${message.seq}_${call.replace('.', '_')}`;
  const spoken: ModelMessage = {
    role: 'assistant',
    content: [
      ...thoughts.map(({ type, text: thought, providerOptions }) => ({
        type,
        text: thought,
        ...(providerOptions ? { providerOptions } : {}),
      })),
      ...(silent ? [] : [{ type: 'text' as const, text }]),
      ...calls.map((call, idx) => {
        const providerOptions = message.callOptions?.[idx];
        const part = { type: 'tool-call' as const, toolCallId: id(call.id), toolName: call.name, input: quoteAll(call.arguments) };
        return providerOptions ? { ...part, providerOptions } : part;
      }),
    ],
  };
  if (calls.length === 0) return [spoken];
  return [
    spoken,
    {
      role: 'tool',
      content: calls.map((call) => {
        const result = resultOf(call.id);
        const value = result ? quote(textOf(result)) : missingResult;
        const output = { type: !result || result.isError ? ('error-text' as const) : ('text' as const), value };
        return { type: 'tool-result' as const, toolCallId: id(call.id), toolName: call.name, output };
      }),
    },
  ];
}

function textOf(message: PromptMessage): string {
  return message.content.map((block) => (block.type === 'text' ? block.text : '')).join('');
}
