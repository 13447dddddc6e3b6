// `interlane demo`: two agents talk on a real gateway with a temporary store; every line comes from its events.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loopbackTo } from '../channels/loopback/loopback.ts';
import { readConfig } from '../config/load.ts';
import type { FeedEvent } from '../protocol/event.ts';
import { Script } from '../runtimes/scripted/scripted.ts';
import { paint, visible, type Terminal } from './terminal.ts';

const config = `{
  agents: { list: [{ id: 'ana', default: true, name: 'Ana' }, { id: 'bo', name: 'Bo' }] },
  session: { agentToAgent: { maxPingPongTurns: 2 } },
  bindings: [{ agentId: 'bo', match: { channel: 'loopback', peer: { kind: 'group', id: 'kitchen' } } }],
  tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
}`;

const kitchen = 'agent:bo:loopback:group:kitchen';

/** What the scripted model says: no key, no cost, the same every time. */
const script = Script.parse([
  { agent: 'ana', when: 'Reply from session', steps: [{ say: 'Noted: soup at noon. Please set two more places.' }] },
  {
    agent: 'ana',
    when: 'lunch',
    steps: [
      {
        say: 'Let me ask the kitchen.',
        calls: [{ tool: 'sessions_send', args: { sessionKey: kitchen, message: 'What is for lunch today, and when?' } }],
      },
      { say: 'The kitchen says: soup, at noon.' },
    ],
  },
  { agent: 'bo', when: 'The exchange with', steps: [{ say: 'Lunch is soup at noon, with two more guests.' }] },
  { agent: 'bo', when: 'What is for lunch', steps: [{ say: 'Soup, at noon.' }] },
  { agent: 'bo', when: 'Reply from session', steps: [{ say: 'REPLY_SKIP' }] },
  { agent: 'bo', steps: [{ say: 'The kitchen is open.' }] },
]);

export async function demo(terminal: Terminal): Promise<void> {
  const { assemble } = await import('../gateway.ts');
  const stateDir = mkdtempSync(join(tmpdir(), 'interlane-demo-'));
  const say = (line: string) => terminal.stdout.write(`${line}\n`);
  say(paint(terminal, 'bold', 'Two agents on a scripted model: no key, no cost. Below is the event stream of a real gateway.'));
  say('');
  const { gateway, parts } = await assemble(readConfig(config, 'demo', {}).config, {
    stateDir,
    script,
    channels: [loopbackTo(() => {})],
    warn: (message) => say(`! ${message}`),
  });
  try {
    let finished = () => {};
    const over = new Promise<void>((resolve) => (finished = resolve));
    const settled = new Set<string>();
    const undo = parts.bus.subscribe({
      wants: () => true,
      deliver(event) {
        const line = describe(event);
        if (line) say(`${paint(terminal, 'gray', String(event.pos).padStart(3))}  ${visible(line)}`);
        if (event.kind === 'delivery' && event.state === 'sent') settled.add(event.deliveryId);
        // The kitchen's opening, Ana's answer to her user, and the announce: the demo ends after these three deliveries.
        if (settled.size === 3) finished();
      },
      reset() {},
      failed: finished,
    });
    const opened = await gateway.receive({
      origin: { channel: 'loopback', peer: { kind: 'group', id: 'kitchen' } },
      text: 'Are you open?',
      sender: 'cook',
    });
    await gateway.wait(opened.runId, 10_000);
    await gateway.receive({ origin: { channel: 'loopback', peer: { kind: 'direct', id: 'you' } }, text: 'What is for lunch?' });
    await over;
    undo();
  } finally {
    await gateway.close();
    rmSync(stateDir, { recursive: true, force: true });
  }
  say('');
  say('The gateway committed each event to a SQLite file before it was printed. Next, in this folder:');
  say('');
  say('  npm start');
  say(`  npx interlane explain access '{"action":"send","caller":{"key":"agent:ana:main"},"target":{"key":"${kitchen}"}}'`);
}

function describe(event: FeedEvent): string | undefined {
  const session = event.sessionKey.replace(/^agent:/, '');
  switch (event.kind) {
    case 'entry': {
      const { role, content, provenance } = event.message;
      const text = content.map((block) => (block.type === 'text' ? block.text : `→ calls ${block.name}`)).join(' ');
      const from =
        role === 'user'
          ? provenance?.sourceSession === undefined
            ? 'user'
            : `from ${provenance.sourceSession.replace(/^agent:/, '')}`
          : role;
      return `${session.padEnd(26)} ${from}: ${text}`;
    }
    case 'run':
      return event.state === 'waiting' ? `${session.padEnd(26)} (waiting; its slot is free for other runs)` : undefined;
    case 'exchange':
      return event.reason === undefined ? undefined : `${session.padEnd(26)} (exchange over: ${event.reason})`;
    case 'delivery':
      return event.state === 'sent' ? `${session.padEnd(26)} (delivered to ${event.channel}:${event.recipient})` : undefined;
    case 'session':
      return undefined;
  }
}
