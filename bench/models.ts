// What the gateway adds to a model: runs on a service that answers at once, beside the raw request and the model library alone.
import { mkdtempSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { streamText } from 'ai';
import { readConfig } from '../src/config/load.ts';
import { mockProvider } from '../test/mock/provider.ts';
import { inChild } from './child.ts';
import { chatKey, makeChats } from './data.ts';
import { median, progress, rate, table, whole } from './measure.ts';
import { acceptance, instantModel, run, type Running } from './setting.ts';

const rounds = 3;
const chats = 2_000;
const loads = [
  { inFlight: 1, count: 150 },
  { inFlight: 16, count: 600 },
  { inFlight: 256, count: 1_000 },
];

export async function benchModels(): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'interlane-bench-'));
  const service = await inChild<{ url: string }>('model');
  try {
    const { url } = service.report;
    const body = await requestOf(directory);
    const request = async () => {
      const response = await fetch(`${url}/chat/completions`, { method: 'POST', body, headers: { 'content-type': 'application/json' } });
      await response.text();
    };
    const model = createOpenAICompatible({ name: 'mock', baseURL: url, includeUsage: true })('m');
    const library = async () => {
      for await (const part of streamText({ model, prompt: 'hello', maxRetries: 0 }).stream) if (part.type === 'error') throw part.error;
    };
    const rows: string[][] = [];
    for (const { inFlight, count } of loads) {
      const taken = { raw: [] as number[], library: [] as number[], one: [] as number[], two: [] as number[] };
      for (let round = 0; round < rounds; round++) {
        progress(`models: ${inFlight} in flight, round ${round + 1} of ${rounds}`);
        await rate(inFlight, inFlight, request);
        taken.raw.push(await rate(count, inFlight, request));
        taken.library.push(await rate(count, inFlight, library));
        taken.one.push(await runs(directory, url, inFlight, count, 'hello'));
        taken.two.push(await runs(directory, url, inFlight, count, 'look'));
      }
      const ms = (perSecond: number[]) => median(perSecond.map((one) => 1_000 / one));
      const [raw, lib, one, two] = [ms(taken.raw), ms(taken.library), ms(taken.one), ms(taken.two)];
      rows.push([
        `${inFlight} in flight`,
        `${whole(1_000 / raw)} /s`,
        `${whole(1_000 / lib)} /s`,
        `${whole(1_000 / one)} /s`,
        `${whole(1_000 / two)} /s`,
        `${(one - raw).toFixed(2)} ms`,
        `${(one - lib).toFixed(2)} ms`,
        `${(two - one - raw).toFixed(2)} ms`,
      ]);
    }
    const head = [
      '',
      'raw requests',
      'library alone',
      'runs, 1 step',
      'runs, 2 steps',
      'added per run',
      'of that ours',
      'added per further step',
    ];
    process.stdout.write(`\nmodels, node ${process.version}, ${availableParallelism()} cores, median of ${rounds}\n\n${table(head, rows)}`);
  } finally {
    await service.kill();
    rmSync(directory, { recursive: true, force: true });
  }
}

async function start(stateDir: string, url: string, slots: number): Promise<Running> {
  const text = JSON.stringify({
    models: { providers: { mock: { type: 'openai-compatible', baseUrl: url } } },
    agents: { defaults: { model: 'mock/m' }, list: [{ id: 'a1', default: true }] },
  });
  return run(readConfig(text, 'bench', {}).config, {
    stateDir,
    caps: { main: slots, nested: slots, subagent: slots, cron: slots },
    warn: (message) => process.stderr.write(`! ${message}\n`),
  });
}

let made = 0;
/** Complete runs per second, each in a session of its own, every commit on the disk. */
async function runs(directory: string, url: string, inFlight: number, count: number, text: string): Promise<number> {
  const stateDir = join(directory, `state-${made++}`);
  await makeChats(stateDir, chats);
  const gateway = await start(stateDir, url, inFlight);
  const run = async (n: number) => {
    const { runId } = await gateway.engine.accept(acceptance(chatKey(n), n, text));
    const { state, error } = await gateway.engine.wait(runId, 60_000);
    if (state !== 'ok') throw new Error(`a run ended ${state}: ${error}`);
  };
  await rate(inFlight, inFlight, (n) => run(chats - 1 - n));
  const perSecond = await rate(count, inFlight, run);
  await gateway.close();
  rmSync(stateDir, { recursive: true, force: true });
  return perSecond;
}

/** The request that a run makes, so that the raw one is as large. */
async function requestOf(directory: string): Promise<string> {
  const service = await mockProvider(instantModel);
  await runs(directory, service.url, 1, 1, 'hello');
  await service.close();
  return service.asked[0]!.text;
}
