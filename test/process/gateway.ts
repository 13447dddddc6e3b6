// A gateway as a process of its own, to be killed: state directory, port and token from the command line.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { Config } from '../../src/config/schema.ts';
import { startGateway } from '../../src/start.ts';
import { Script } from '../../src/runtimes/scripted/scripted.ts';
import { defineTool } from '../../src/tools/define.ts';

const [stateDir, port, token] = process.argv.slice(2) as [string, string, string];

/** Waits until a file is there, so that a test decides when a turn goes on. */
const gate = defineTool({
  name: 'gate',
  description: 'Wait for a file.',
  effect: 'pure',
  params: z.strictObject({ name: z.string() }),
  async run({ signal }, { name }) {
    process.stdout.write(`waiting for ${name}\n`);
    while (!existsSync(join(stateDir, name))) await sleep(20, undefined, { signal });
    return { value: 'open' };
  },
});

const script = Script.parse([
  { when: 'gate', steps: [{ calls: [{ tool: 'gate', args: { name: '{{input}}' } }] }, { say: 'through {{input}}' }] },
  { steps: [{ say: 'you said {{input}}' }] },
]);

const gateway = await startGateway(Config.parse({}), {
  stateDir,
  script,
  tools: [gate],
  search: false,
  listen: { host: '127.0.0.1', port: Number(port), token, version: '0.0.0-test' },
});
process.stdout.write(`port ${gateway.server!.port} ready\n`);
