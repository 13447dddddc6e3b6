// `--json` prints messages as they are on the wire, byte for byte, whatever the client calls their fields inside.
import { expect, it } from 'vitest';
import { testGateway, type TestGateway } from '../harness/gateway.ts';
import { Wire } from '../harness/socket.ts';
import { started } from '../harness/terminal.ts';

/** Text of the messages in a history page, as the gateway writes it. */
async function messagesOnTheWire(gw: TestGateway): Promise<string> {
  const wire = await Wire.connect(gw.port, gw.admin);
  await wire.answer(wire.ask('chat.history', { sessionKey: 'main' }, 'page'));
  const text = wire.texts.find((one) => one.includes('"id":"page"'))!;
  return /"messages":(\[.*\]),"hasMore"/.exec(text)![1]!;
}

it('a message has the same bytes on the wire and in history, chat and tail with --json', async () => {
  const script = [{ steps: [{ calls: [{ tool: 'session_status', args: {} }] }, { say: 're: {{input}}' }] }];
  const gw = await testGateway({ script, listen: true, clock: 'real' });
  const env = { INTERLANE_STATE_DIR: gw.stateDir };
  const tail = started(['tail', 'main', '--json'], { env });
  await tail.printed('"connected"');
  const chat = await started(['chat', '--json'], { input: 'hello', env }).finished;
  await tail.printed('re: hello');
  tail.interrupt();

  const wire = await messagesOnTheWire(gw);
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
