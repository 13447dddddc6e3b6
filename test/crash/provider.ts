// A model service in its own process, shaped like OpenAI's: writes each request down before it answers, and answers by what it is shown.
import { appendFileSync } from 'node:fs';
import { createServer } from 'node:http';

const log = process.argv[2]!;

interface Message {
  role: string;
  content: string | null;
  tool_calls?: unknown[];
}

const text = (content: string, finish = 'stop') => [{ delta: { role: 'assistant', content } }, { delta: {}, finish_reason: finish }];
const calls = (said: string, ...names: string[]) => [
  { delta: { role: 'assistant', content: said } },
  {
    delta: { tool_calls: names.map((name, index) => ({ index, id: `c${index}`, type: 'function', function: { name, arguments: '{}' } })) },
  },
  { delta: {}, finish_reason: 'tool_calls' },
];

const sends = (...args: object[]) => [
  {
    delta: {
      role: 'assistant',
      tool_calls: args.map((one, index) => ({
        index,
        id: `c${index}`,
        type: 'function',
        function: { name: 'sessions_send', arguments: JSON.stringify(one) },
      })),
    },
  },
  { delta: {}, finish_reason: 'tool_calls' },
];
const to = (sessionKey: string, message: string) => ({ sessionKey, message });

/** What the last word of a message asks for: sends to other sessions, before the answer. */
const errands: Record<string, () => object[]> = {
  ask: () => sends(to('agent:bo:main', 'question')),
  tell: () => sends({ ...to('agent:bo:main', 'question'), timeoutSeconds: 0 }),
  both: () => sends(to('agent:bo:main', 'question'), to('agent:carl:main', 'question')),
  chain: () => sends(to('agent:bo:main', 'relay')),
  relay: () => sends(to('agent:carl:main', 'question')),
  visit: () => sends(to('agent:ana:guest:fable', 'question')),
};

/** Acts in two steps, looking around beside the first; then speaks. */
const steps = [() => calls('Acting.', 'act', 'session_status'), () => calls('', 'act'), () => text('Acted.')];

const server = createServer((request, response) => {
  let body = '';
  request.setEncoding('utf8').on('data', (chunk: string) => (body += chunk));
  request.on('end', () => {
    const { messages } = JSON.parse(body) as { messages: Message[] };
    const last = messages.findLastIndex(({ role }) => role === 'user');
    const asked = messages[last]!.content ?? '';
    const summary = asked.includes('Summarise this conversation');
    const [op = ''] = summary ? ['summary'] : asked.split(' ');
    const step = 1 + messages.slice(last).filter((message) => message.tool_calls).length;
    // A long message fits only after what was before it has been summed up.
    const refused = asked.endsWith('long') && !body.includes('In short.');
    appendFileSync(log, `${JSON.stringify({ path: request.url, op, step, refused })}\n`);
    if (refused) {
      response.writeHead(400, { 'content-type': 'application/json' });
      response.end(
        JSON.stringify({ error: { message: 'maximum context length exceeded', type: 'invalid', code: 'context_length_exceeded' } }),
      );
      return;
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const errand = step === 1 ? errands[/(\w+)\s*$/.exec(asked)?.[1] ?? ''] : undefined;
    const parts = errand
      ? errand()
      : summary
        ? text('In short.')
        : asked.endsWith('loop')
          ? (steps[step - 1] ?? steps.at(-1)!)()
          : text('Heard.');
    const about = { id: 'x', object: 'chat.completion.chunk', created: 1, model: 'm' };
    for (const part of parts) response.write(`data: ${JSON.stringify({ ...about, choices: [{ index: 0, ...part }] })}\n\n`);
    response.end(
      `data: ${JSON.stringify({ ...about, choices: [], usage: { prompt_tokens: 9, completion_tokens: 2, total_tokens: 11 } })}\n\ndata: [DONE]\n\n`,
    );
  });
});
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  process.stdout.write(`http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}\n`);
});
