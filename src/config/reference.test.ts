import { describe, expect, it, onTestFinished } from 'vitest';
import { testGateway } from '../../test/harness/gateway.ts';
import { callAs } from '../../test/harness/inside.ts';
import { mockProvider } from '../../test/mock/provider.ts';
import { SessionFacts } from '../protocol/session.ts';
import { compileWorld, decide, partyOf } from '../rules/decide.ts';
import { compileRoutes, nearMisses } from '../rules/route.ts';
import { createLog } from '../observe/log.ts';
import { findModel } from '../runtimes/model/models.ts';
import { readConfig } from './load.ts';
import { configReference, listSettings } from './reference.ts';
import type { Config } from './schema.ts';

const settings = listSettings();

/** A config that sets everything with an effect, so that reading it touches everything there is to read. */
const full = (modelUrl: string) =>
  readConfig(
    `{
    session: { identityLinks: { ana: ['irc:1'] }, dmScope: 'per-peer', sendPolicy: { rules: [{ match: { channel: 'irc', chatType: 'direct', keyPrefix: 'x' }, action: 'deny' }, { match: { surface: 'irc' }, action: 'allow' }] } },
    models: { providers: { mock: { type: 'openai-compatible', baseUrl: '${modelUrl}', apiKey: 'k', authProfiles: { p: { apiKey: 'q' } }, models: { m: { contextTokens: 1000, cost: { input: 1, output: 1 } } } } } },
    gateway: { port: 0, names: ['x'] },
    mcp: { servers: { child: { command: '${process.execPath}', args: ['test/mock/mcp-child.ts', 'well'], env: { X: 'y' }, agents: ['a'], level: 'PUBLIC', accepts: 'RESTRICTED', effect: 'pure', timeoutSeconds: 30, tools: { echo: { effect: 'pure', level: 'PUBLIC' } } }, web: { url: 'http://127.0.0.1:1/', headers: { x: 'y' } } } },
    agents: { defaults: { model: 'mock/m', fallbacks: ['mock/n'], thinking: 'low', subagents: { allowAgents: ['b'] } }, list: [{ id: 'a', default: true, name: 'A', model: 'mock/m', thinking: 'high', instructions: 'Be brief.', runtime: 'model', workspace: '/nowhere/x', tools: { allow: ['*'], deny: ['x'] }, subagents: { allowAgents: ['b'] }, sandbox: { mode: 'off', sessionToolsVisibility: 'all' } }, { id: 'b', runtime: 'model' }] },
    tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true, allow: ['*'] }, subagents: { tools: { allow: ['*'], deny: ['x'] } }, channels: { irc: { allow: ['*'], deny: ['x'] } } },
    bindings: [{ agentId: 'b', match: { channel: 'irc', accountId: 'x', peer: { kind: 'direct', id: '1' }, guildId: 'g', teamId: 't' } }],
    classification: { channels: { irc: 'INTERNAL' } },
    policy: { rules: [{ id: 'r', hook: 'PRE_OUTPUT', match: { tool: '*', channel: '*', agentId: '*', keyPrefix: 'agent:', taint: 'PUBLIC', text: 'x' }, effect: 'BLOCK', message: 'no' }, { id: 's', hook: 'PRE_TOOL_CALL', match: { tool: '*', channel: '*', agentId: '*', keyPrefix: 'agent:', taint: 'PUBLIC', text: 'x' }, effect: 'BLOCK', message: 'no' }] },
  }`,
    'test.json5',
    {},
  ).config;

/** Notes every path that is read, with list positions and free names left out. */
function watched<T extends object>(value: T, read: Set<string>, path = ''): T {
  return new Proxy(value, {
    get(target, name, receiver) {
      const found: unknown = Reflect.get(target, name, receiver);
      if (typeof name === 'symbol' || typeof found === 'function' || (Array.isArray(target) && name === 'length')) return found;
      const free =
        /^(session\.identityLinks|classification\.channels|tools\.channels|mcp\.servers|mcp\.servers\.<name>\.tools|models\.providers|models\.providers\.<name>\.(authProfiles|models))$/.test(
          path,
        );
      const here = Array.isArray(target) ? `${path}[]` : free ? `${path}.<name>` : `${path}${path ? '.' : ''}${name}`;
      read.add(here);
      return typeof found === 'object' && found !== null ? watched(found, read, here) : found;
    },
  });
}

/** Everything that reads a config, asked once each. */
async function readEverything(config: Config): Promise<void> {
  const log = createLog({ level: config.log.level, terminal: false, write: () => {} });
  const gateway = await testGateway({ parsed: config, log, search: true, channels: [], listen: { host: undefined, port: undefined } });
  // One answer by an agent with settings of its own, one by another with a key of its own.
  for (const [key, settings] of [
    ['agent:a:main', '{}'],
    ['agent:b:main', '{"authProfile":"p"}'],
  ] as const) {
    await gateway.rows.setSession(key, { settings });
    await gateway.accept(key, { sessionKey: key });
    expect((await gateway.wait(key)).state).toBe('ok');
  }
  const { runId } = await gateway.receive({ origin: { channel: 'irc', peer: { kind: 'direct', id: '3' } }, text: 'hi', mode: 'collect' });
  await gateway.clock.advance(config.session.queue.collectMs);
  await gateway.wait(runId);
  await gateway.call('guests.join', { name: 'g', agentId: 'a' });
  expect(await callAs(gateway, 'agent:a:main', 'child__echo', { text: 'hello' })).toBe('echo: hello');
  expect(await callAs(gateway, 'agent:a:guest:g', 'inbox', { waitSeconds: 0 })).toContain('nothing yet');
  await gateway.close();
  expect(await findModel(config, {}, () => Promise.reject(new Error('nobody is there')))).toBeUndefined();
  const world = compileWorld(config);
  const routes = compileRoutes(config, world.agents);
  nearMisses(routes, { channel: 'irc', peer: { kind: 'direct', id: '2' } }, undefined);
  const caller = partyOf(world, SessionFacts.parse({ key: 'agent:a:irc:direct:1', channel: 'irc', depth: 1 }));
  decide({ action: 'deliver', caller, channel: 'irc', text: 'x' }, world);
  decide({ action: 'deliver', caller, channel: 'elsewhere' }, world);
  decide({ action: 'tool', caller, tool: 't', text: 'x' }, world);
  decide({ action: 'read', caller, target: partyOf(world, SessionFacts.parse({ key: 'agent:b:main' })) }, world);
}

describe('the config reference', () => {
  it('gives a reason for every setting', () => {
    expect(settings.filter((setting) => setting.reason === '').map((setting) => setting.path)).toEqual([]);
  });

  it('names every setting, its default, and whether it is secret or without effect yet', () => {
    const page = configReference();
    for (const { path } of settings) expect(page).toContain(`\`${path}\``);
    expect(page).toContain('- `session.dmScope`: "main", "per-peer", "per-channel-peer" or "per-account-channel-peer"; default `"main"`');
    expect(page).toContain('- `gateway.port`: a whole number from 0 to 65535; default `4683` (*restart*)');
    expect(page).toContain('- `hooks.token`: text (*secret*, *not yet*)');
    expect(page).toContain('- `bindings[].agentId`: text (*required*)');
  });

  it('has the settings of the source documents', () => {
    const paths = new Set(settings.map((setting) => setting.path));
    const named = [
      'session.scope',
      'session.dmScope',
      'session.mainKey',
      'session.identityLinks',
      'session.sendPolicy.rules',
      'session.sendPolicy.default',
      'session.agentToAgent.maxPingPongTurns',
      'session.threadBindings.enabled',
      'agents.defaults.model',
      'agents.defaults.thinking',
      'agents.defaults.maxConcurrent',
      'agents.defaults.sandbox.mode',
      'agents.defaults.sandbox.sessionToolsVisibility',
      'agents.defaults.subagents.model',
      'agents.defaults.subagents.thinking',
      'agents.defaults.subagents.runTimeoutSeconds',
      'agents.defaults.subagents.archiveAfterMinutes',
      'agents.defaults.subagents.allowAgents',
      'agents.defaults.subagents.maxSpawnDepth',
      'agents.defaults.subagents.maxConcurrent',
      'agents.list[].id',
      'agents.list[].default',
      'agents.list[].name',
      'agents.list[].instructions',
      'agents.list[].model',
      'agents.list[].runtime',
      'agents.list[].workspace',
      'agents.list[].subagents.allowAgents',
      'agents.list[].sandbox.mode',
      'owners',
      'tools.sessions.visibility',
      'tools.agentToAgent.enabled',
      'tools.agentToAgent.allow',
      'tools.subagents.tools.allow',
      'tools.subagents.tools.deny',
      'bindings',
      'channels',
      'models.providers',
      'classification.channels',
      'classification.tools',
      'policy.rules',
      'gateway.port',
      'hooks.enabled',
      'mcp.servers',
      'store.durability',
    ];
    expect(named.filter((path) => !paths.has(path))).toEqual([]);
  });

  it('marks every setting that nothing reads as "not yet"', { timeout: 60_000 }, async () => {
    const read = new Set<string>();
    const provider = await mockProvider((_, index) => (index === 0 ? { calls: [{ name: 'agents_list', args: {} }] } : { text: 'Hello.' }));
    onTestFinished(() => provider.close());
    await readEverything(watched(full(provider.url), read));
    const effective = settings
      .filter(({ notYet, allowed }) => !notYet && allowed !== 'a list' && allowed !== 'an object')
      .map(({ path }) => path.replace(/\[\]$/, ''));
    expect(effective.length).toBeGreaterThan(35);
    expect(effective.filter((path) => !read.has(path))).toEqual([]);
  });
});
