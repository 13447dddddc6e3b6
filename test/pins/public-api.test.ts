// What users of the package may rely on, as literals: a name that goes or changes its kind is a breaking change.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import * as client from '../../src/client/index.ts';
import * as whole from '../../src/index.ts';

const kindOf = (value: unknown) => (typeof value === 'function' ? (/^class\b/.test(String(value)) ? 'class' : 'function') : typeof value);
const kinds = (entry: object) => Object.fromEntries(Object.entries(entry).map(([name, value]) => [name, kindOf(value)]));
/** Names that are exported as types only. */
const types = (file: string) => {
  const lists = [...readFileSync(file, 'utf8').matchAll(/^export (type )?\{([^}]*)\}/gm)];
  return lists
    .flatMap(([, all, names]) => names!.split(',').flatMap((name) => (all ? [name] : (/^\s*type (.+)/.exec(name)?.slice(1) ?? []))))
    .map((name) => name.trim())
    .filter((name) => name !== '')
    .toSorted();
};

describe('interlane', () => {
  it('exports these values', () => {
    expect(kinds(whole)).toEqual({
      Conversation: 'class',
      InterlaneError: 'class',
      Script: 'object',
      connect: 'function',
      decide: 'function',
      defaultConfig: 'function',
      defineTool: 'function',
      errorTable: 'object',
      follow: 'function',
      formatSessionKey: 'function',
      loadConfig: 'function',
      loopbackPost: 'function',
      loopbackTo: 'function',
      memoryStore: 'function',
      nextDue: 'function',
      parseDuration: 'function',
      parseSchedule: 'function',
      parseSessionKey: 'function',
      partyOf: 'function',
      planReference: 'function',
      readConfig: 'function',
      requestKey: 'function',
      route: 'function',
      scriptedModel: 'function',
      settleReference: 'function',
      startGateway: 'function',
    });
  });

  it('exports these types', () => {
    expect(types('src/index.ts')).toEqual([
      'Channel',
      'Client',
      'Config',
      'ConnectOptions',
      'ConversationEvent',
      'ConversationOptions',
      'Decision',
      'ErrorCode',
      'Follow',
      'Gateway',
      'GatewayOptions',
      'Item',
      'LoadedConfig',
      'PluginCall',
      'PluginResult',
      'Request',
      'Route',
      'Routes',
      'Schedule',
      'SessionKey',
      'Tool',
      'World',
    ]);
  });
});

describe('interlane/client', () => {
  it('exports these values', () => {
    expect(kinds(client)).toEqual({
      Client: 'class',
      Conversation: 'class',
      InterlaneError: 'class',
      callsOf: 'function',
      connect: 'function',
      errorTable: 'object',
      follow: 'function',
      isSaid: 'function',
      isSummary: 'function',
      sourceOf: 'function',
      speaker: 'function',
      textOf: 'function',
    });
  });

  it('exports these types', () => {
    expect(types('src/client/index.ts')).toEqual([
      'Accepted',
      'AgentEvent',
      'AnswerItem',
      'CallItem',
      'CallOptions',
      'ChatEvent',
      'ConnectOptions',
      'ConversationEvent',
      'ConversationOptions',
      'ErrorCode',
      'EventPayloads',
      'Follow',
      'HelloOk',
      'Item',
      'OperationName',
      'Params',
      'Pending',
      'Results',
      'Scope',
      'SessionMessage',
      'SessionsChanged',
      'SessionsPage',
      'TokenView',
      'WaitAnswer',
      'WireMessage',
      'WireRun',
      'WireSession',
    ]);
  });
});

it('the package has these entries', () => {
  const { exports } = JSON.parse(readFileSync('package.json', 'utf8')) as { exports: Record<string, unknown> };
  expect(Object.keys(exports)).toEqual(['.', './client']);
});

it('a tool of a user gets its caller and nothing of the inside', async () => {
  const stateDir = mkdtempSync(join(tmpdir(), 'interlane-plugin-'));
  const calls: { fields: string[]; session: object; args: object }[] = [];
  const weigh = whole.defineTool({
    name: 'weigh',
    description: 'Weigh a thing.',
    effect: 'keyed',
    params: z.strictObject({ thing: z.string() }),
    run(call, args) {
      calls.push({ fields: Object.keys(call).toSorted(), session: call.session, args });
      return Promise.resolve({ value: `${args.thing}: 3 kg`, level: 'INTERNAL' });
    },
  });
  const script = whole.Script.parse([{ steps: [{ calls: [{ tool: 'weigh', args: { thing: 'cat' } }] }, { say: 'It is heavy.' }] }]);
  const token = 'a secret of at least sixteen';
  const listen = { host: '127.0.0.1', port: 0, token, version: '1' };
  const gateway = await whole.startGateway(whole.defaultConfig(), { stateDir, tools: [weigh], script, search: false, listen });
  const self = { id: 'test', mode: 'test', version: '1', platform: 'test' };
  const operator = await whole.connect({ url: gateway.server!.url, token, client: self });
  onTestFinished(async () => {
    operator.close();
    await gateway.close();
    rmSync(stateDir, { recursive: true, force: true });
  });
  const { runId } = await operator.call('chat.send', { sessionKey: 'main', message: 'go', idempotencyKey: '1' });
  await operator.call('agent.wait', { runId });
  const page = await operator.call('chat.history', { sessionKey: 'main' });
  const [result] = 'messages' in page ? page.messages.filter(({ role }) => role === 'toolResult') : [];
  expect(result).toMatchObject({ toolName: 'weigh', taint: 'INTERNAL' });
  expect(calls).toEqual([
    {
      fields: ['idempotencyKey', 'now', 'session', 'signal'],
      session: { key: 'agent:main:main', id: expect.any(String) as string, agentId: 'main', taint: 'PUBLIC' },
      args: { thing: 'cat' },
    },
  ]);
});
