// `--json` prints messages as they are on the wire, byte for byte, whatever the client calls their fields inside.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import { defaultConfig, Script, startGateway } from '../../src/index.ts';
import { started } from './command-line.ts';

const token = 'a secret of at least sixteen';

/** Text of the messages in a history page, as the gateway writes it. */
async function messagesOnTheWire(url: string): Promise<string> {
  const socket = new WebSocket(url.replace('http', 'ws'));
  onTestFinished(() => socket.close());
  const client = { id: 'test', version: '1', platform: 'test', mode: 'test' };
  const ask = (id: string, method: string, params: object) => socket.send(JSON.stringify({ type: 'req', id, method, params }));
  return new Promise((resolve, reject) => {
    socket.on('error', reject);
    socket.on('message', (data: Buffer) => {
      const text = data.toString();
      if (text.includes('connect.challenge')) ask('1', 'connect', { minProtocol: 4, maxProtocol: 4, client, auth: { token } });
      if (text.includes('hello-ok')) ask('2', 'chat.history', { sessionKey: 'main' });
      if (text.includes('"id":"2"')) resolve(/"messages":(\[.*\]),"hasMore"/.exec(text)![1]!);
    });
  });
}

it('a message has the same bytes on the wire and in history, chat and tail with --json', async () => {
  const stateDir = mkdtempSync(join(tmpdir(), 'interlane-json-'));
  const listen = { host: '127.0.0.1', port: 0, token, version: '1' };
  const script = Script.parse([{ steps: [{ calls: [{ tool: 'session_status', args: {} }] }, { say: 're: {{input}}' }] }]);
  const gateway = await startGateway(defaultConfig(), { stateDir, script, listen, search: false });
  onTestFinished(async () => {
    await gateway.close();
    rmSync(stateDir, { recursive: true, force: true });
  });
  const env = { INTERLANE_STATE_DIR: stateDir };
  const tail = started(['tail', 'main', '--json'], { env });
  await tail.printed('"connected"');
  const chat = await started(['chat', '--json'], { input: 'hello', env }).finished;
  await tail.printed('re: hello');
  tail.interrupt();

  const wire = await messagesOnTheWire(gateway.server!.url);
  const messages = JSON.parse(wire) as object[];
  expect(messages).toHaveLength(4);
  expect(messages.map((message) => Object.keys(message)[3])).toEqual(Array(4).fill('__openclaw'));
  const history = JSON.parse((await started(['history', 'main', '--tools', '--json'], { env }).finished).stdout) as { messages: object[] };
  expect(JSON.stringify(history.messages)).toBe(wire);
  for (const stdout of [chat.stdout, (await tail.finished).stdout]) {
    const printed = stdout.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line) as { event: string; message: object }]));
    expect(JSON.stringify(printed.flatMap(({ event, message }) => (event === 'session.message' ? [message] : [])))).toBe(wire);
  }
});
