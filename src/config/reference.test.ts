import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { configReference, listSettings } from './reference.ts';

const settings = listSettings();

/** All product code that could read a setting: not the schemas that declare it, not the tests. */
const readers = readdirSync('src', { recursive: true, encoding: 'utf8' })
  .filter(
    (file) => file.endsWith('.ts') && !file.endsWith('.test.ts') && !file.startsWith('protocol') && file !== join('config', 'schema.ts'),
  )
  .map((file) => readFileSync(join('src', file), 'utf8'))
  .join('\n');

describe('the config reference', () => {
  it('gives a reason for every setting', () => {
    expect(settings.filter((setting) => setting.reason === '').map((setting) => setting.path)).toEqual([]);
  });

  it('names every setting, its default, and whether it is secret or without effect yet', () => {
    const page = configReference();
    for (const { path } of settings) expect(page).toContain(`\`${path}\``);
    expect(page).toContain('- `session.dmScope`: "main", "per-peer", "per-channel-peer" or "per-account-channel-peer"; default `"main"`');
    expect(page).toContain('- `gateway.port`: a whole number from 0 to 65535; default `4683` (*not yet*)');
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

  it('marks every setting that nothing in src/ reads as "not yet"', () => {
    const isRead = (path: string) => new RegExp(`(\\.|[{,]\\s*)${lastName(path)}\\b(?!['"])`).test(readers);
    expect(isRead('session.noSuchSetting')).toBe(false);
    expect(settings.filter(({ path, notYet }) => !notYet && !isRead(path)).map(({ path }) => path)).toEqual([]);
  });
});

function lastName(path: string): string {
  return path.replaceAll('[]', '').replaceAll('.<name>', '').split('.').at(-1)!;
}
