// The stage of the corpus: a gateway whose clock stands still, an admin on its websocket, and a record of what is asked and answered.
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { onTestFinished } from 'vitest';
import { loopbackTo } from '../../src/channels/loopback/loopback.ts';
import { testGateway, type ConfigText, type ScriptText } from '../harness/gateway.ts';
import { Wire, type Frame } from '../harness/socket.ts';
import { Recorder } from './recorder.ts';

// oxlint-disable-next-line typescript/no-explicit-any -- what is answered is written down, not used
type Any = any;

export const adminToken = 'the-token-of-the-corpus';
const config: ConfigText = {
  agents: { list: [{ id: 'main', name: 'Ana', default: true }, { id: 'research' }] },
  session: { dmScope: 'per-peer', sendPolicy: { rules: [{ match: { keyPrefix: 'agent:main:mute' }, action: 'deny' }] } },
  tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
  bindings: [{ agentId: 'research', match: { channel: 'loopback', peer: { kind: 'direct', id: 'rita' } } }],
  classification: { channels: { vault: 'CONFIDENTIAL' } },
  policy: { rules: [{ id: 'no-swearing', hook: 'PRE_OUTPUT', match: { text: 'damn' }, effect: 'BLOCK' }] },
};
const calls = (tool: string, args: Record<string, unknown>) => ({ calls: [{ tool, args }] });
const script: ScriptText = [
  { when: 'REPLY_SKIP', steps: [{ say: 'REPLY_SKIP' }] },
  { when: 'ANNOUNCE_SKIP', steps: [{ say: 'ANNOUNCE_SKIP' }] },
  { when: '\\nfail', steps: [{ fail: 'the model broke' }] },
  { when: '\\nstatus', steps: [{ say: 'Let me look.', ...calls('session_status', {}) }, { say: 'That was it.' }] },
  { when: '\\nstream', steps: [{ say: 'One, two, three.', stream: 5 }] },
  { when: '\\ngate', steps: [calls('gate', { name: '{{input}}' }), { say: 'Through.' }] },
  {
    when: '\\nask',
    steps: [
      calls('sessions_send', { sessionKey: 'agent:research:main', message: 'Which one?', timeoutSeconds: 30 }),
      { say: 'It said: {{result}}' },
    ],
  },
  { steps: [{ say: 're: {{input}}' }] },
];

/** A gateway whose clock stands still, an admin on its websocket, and a record of what is asked and answered. */
export async function opened() {
  const sent = loopbackTo(() => {});
  const channels = [sent, { ...sent, name: 'vault' }];
  const gw = await testGateway({ config, script, channels, stops: true, listen: { version: 'test', token: adminToken } });
  const { port, url } = gw;
  const corpus = new Recorder(gw.now());
  corpus.path(gw.stateDir, '<state>');
  const admin = await Wire.connect(port, adminToken);
  /** What a call gives, without writing it down. */
  const call = (method: string, params: object): Promise<Any> => admin.answer(admin.ask(method, params));
  /** Over and answered. */
  const ended = (runId: string) => call('agent.wait', { runId, timeoutMs: 86_400_000 });
  const say = async (sessionKey: string, message: string, idempotencyKey: string) => {
    corpus.give(idempotencyKey);
    await call('chat.send', { sessionKey, message, idempotencyKey });
    return ended(idempotencyKey);
  };
  return { gw, port, url, corpus, admin, call, ended, say };
}

export type Opened = Awaited<ReturnType<typeof opened>>;

/** Asks on a socket and writes down the answers: all of them, where a method gives two. */
export function asker({ corpus }: Opened, wire: Wire, who: string) {
  return async (method: string, params?: unknown, answers = 1): Promise<Any> => {
    const id = wire.ask(method, params);
    const frames: Frame[] = [];
    for (let nth = 1; nth <= answers; nth++) frames.push(await wire.frame((frame) => frame.type === 'res' && frame.id === id, nth));
    const shown = frames.map((frame) => without(frame, 'id'));
    corpus.line(`${who} ${method}${params === undefined ? '' : ` ${corpus.json(params)}`}`, ...shown);
    return frames.at(-1)!.payload;
  };
}

const without = (value: object, name: string): Record<string, unknown> =>
  Object.fromEntries(Object.entries(value).filter(([key]) => key !== name));

export const parses = (text: string) => {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
};

/** The row of a session in an event is of the moment it was written, which may be later: what a run changes in it is left out. */
export function settledEvent(payload: Record<string, unknown>): Record<string, unknown> {
  const rest = without(payload, 'usage');
  const session = rest['session'] as Record<string, unknown> | undefined;
  if (session && rest['phase'] === 'message') {
    const moving = new Set([
      'status',
      'hasActiveRun',
      'activeRunIds',
      'queuedRuns',
      'totalTokens',
      'messageCount',
      'abortedLastRun',
      'updatedAt',
      'systemSent',
    ]);
    return { ...rest, session: Object.fromEntries(Object.entries(session).filter(([key]) => !moving.has(key))) };
  }
  return rest;
}

export function settledFrame(frame: Frame): object {
  return { ...without(frame, 'seq'), ...(frame.payload ? { payload: settledEvent(frame.payload) } : {}) };
}

/** A block of an event stream: its lines, with the JSON in it made stable. */
export function streamed(corpus: Recorder, block: string): string {
  return block
    .split('\n')
    .map((line) =>
      line.startsWith('id: ')
        ? 'id: <cursor>'
        : line.startsWith('data: ')
          ? `data: ${corpus.json(settledEvent(JSON.parse(line.slice(6)) as Record<string, unknown>))}`
          : line,
    )
    .join(' | ');
}

/** Follows a session as a stream of events, on a connection of its own. */
export async function streamOf(url: string, headers: Record<string, string> = {}) {
  const asked = get(url, { agent: false, headers: { authorization: `Bearer ${adminToken}`, ...headers } });
  onTestFinished(() => void asked.destroy());
  const [response] = (await once(asked, 'response')) as [IncomingMessage];
  const pieces = response.setEncoding('utf8')[Symbol.asyncIterator]() as AsyncIterator<string>;
  let text = '';
  /** The next block, up to an empty line. */
  const next = async (): Promise<string> => {
    while (!text.includes('\n\n')) {
      const { value, done } = await pieces.next();
      if (done) throw new Error(`the stream ended after ${JSON.stringify(text)}`);
      text += value;
    }
    const at = text.indexOf('\n\n');
    const block = text.slice(0, at);
    text = text.slice(at + 2);
    return block;
  };
  /** Everything up to the message that holds a text. */
  const until = async (words: string): Promise<string[]> => {
    const blocks: string[] = [];
    do blocks.push(await next());
    while (!blocks.at(-1)!.startsWith('event: message') || !blocks.at(-1)!.includes(words));
    return blocks;
  };
  return { status: response.statusCode!, type: response.headers['content-type'], next, until };
}
