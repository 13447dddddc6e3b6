// `interlane up`: load the config, start the gateway, print one screen, run until a stop signal.
import { chmodSync, existsSync, mkdirSync, statSync } from 'node:fs';
import { enableCompileCache, flushCompileCache } from 'node:module';
import { connect } from 'node:net';
import { join } from 'node:path';
import type { Paths } from '../config/paths.ts';
import { watchConfig, type Change } from '../config/change.ts';
import { defaultConfig, loadConfig } from '../config/load.ts';
import type { Config } from '../config/schema.ts';
import { InterlaneError, reasonOf } from '../errors.ts';
import type { Choice, Found } from '../runtimes/model/choice.ts';
import type { Log } from '../observe/log.ts';
import { running } from './reach.ts';
import { columns, paint, visible, type Terminal } from './terminal.ts';
import { version } from './version.ts';

export interface UpFlags {
  host?: string;
  port?: number;
}

export async function up(terminal: Terminal, paths: Paths, config: Config, warnings: string[], flags: UpFlags): Promise<void> {
  const listen = listenAt(terminal.env, config, flags, paths.configFile);
  const open = openState(paths.stateDir);
  enableCompileCache(join(paths.stateDir, 'cache')); // the next start is faster
  const [{ startGateway }, { createLog }, { findModel }] = await Promise.all([
    import('../start.ts'),
    import('../observe/log.ts'),
    import('../runtimes/model/models.ts'),
  ]);
  const log = createLog({
    level: config.log.level,
    terminal: terminal.stderr.isTTY === true,
    write: (line) => void terminal.stderr.write(visible(line.trimEnd()) + '\n'),
  });
  const warn = (message: string) => log.warn(message);
  const found = await findModel(config, terminal.env, fetchIfThere);
  let gateway: Awaited<ReturnType<typeof startGateway>>;
  try {
    gateway = await startGateway(config, { stateDir: paths.stateDir, warn, log, listen, found });
  } catch (thrown) {
    if (await sayRunning(terminal, paths.stateDir, thrown)) return;
    throw thrown;
  }
  // Listen for signals before printing the screen, so that one right after the last line is not missed.
  const stopped = stopSignal(terminal);
  const { server, defaultAgentId: defaultId } = gateway;
  const notes = [...warnings, ...gateway.warnings, ...open];
  const model = gateway.modelOf(defaultId);
  terminal.stdout.write(screen(terminal, { paths, config, found, model, server: server!, defaultId, notes }));
  flushCompileCache();
  log.info({ url: server!.url, version, pid: process.pid }, 'gateway is up');
  const unwatch = followConfig(paths.configFile ?? paths.usualConfigFile, terminal.env, gateway, log);
  await stopped;
  unwatch();
  terminal.stdout.write('Stopping.\n');
  await gateway.close();
  terminal.stdout.write('Stopped.\n');
}

/** Checks the port first: loading `fetch` takes 20 ms and 5 MB, and usually nothing listens. */
const fetchIfThere: typeof fetch = async (input, init) => {
  const { hostname, port } = new URL(input);
  await new Promise<void>((resolve, reject) => {
    const socket = connect({ host: hostname, port: Number(port), ...(init?.signal ? { signal: init.signal } : {}) });
    socket.once('error', reject);
    socket.once('connect', () => {
      socket.destroy();
      resolve();
    });
  });
  return fetch(input, init);
};

/** Applies a changed or new config file; an invalid one changes nothing. */
function followConfig(file: string, env: Terminal['env'], gateway: { reload(config: Config): Promise<Change> }, log: Log): () => void {
  const take = async () => {
    try {
      const { applied, restart } = await gateway.reload(existsSync(file) ? loadConfig(file, env).config : defaultConfig());
      if (applied.length > 0) log.warn({ settings: applied.join(', ') }, 'config changed');
      if (restart.length > 0) log.warn({ settings: restart.join(', ') }, `config changed; restart to apply: ${restart.join(', ')}`);
    } catch (thrown) {
      log.error(`config rejected; still using the previous one: ${reasonOf(thrown).replace('; nothing was started', '')}`);
    }
  };
  return watchConfig(file, () => void take());
}

const shortestToken = 16;

function listenAt(env: Terminal['env'], config: Config, flags: UpFlags, configFile: string | undefined) {
  const token = env['INTERLANE_TOKEN'] || undefined;
  if (token !== undefined && token.length < shortestToken)
    throw new InterlaneError('USAGE', `INTERLANE_TOKEN is too short to be a secret; use at least ${shortestToken} characters, or unset it`);
  return { host: flags.host ?? config.gateway.host, port: flags.port ?? portOf(env) ?? config.gateway.port, token, version, configFile };
}

function portOf(env: Terminal['env']): number | undefined {
  const written = env['INTERLANE_PORT'];
  if (!written) return undefined;
  if (!/^\d{1,5}$/.test(written) || Number(written) > 65_535)
    throw new InterlaneError('USAGE', 'INTERLANE_PORT is not a port; write a number from 0 to 65535, or unset it');
  return Number(written);
}

/** A second start finds the gateway running, which is what the user wants. */
async function sayRunning(terminal: Terminal, stateDir: string, thrown: unknown): Promise<boolean> {
  if (!(thrown instanceof InterlaneError) || (thrown.code !== 'STATE_IN_USE' && thrown.code !== 'PORT_UNUSABLE')) return false;
  const found = await running(stateDir);
  if (found) terminal.stdout.write(`Interlane is running already: ${visible(found.url)} (process ${found.pid}, state ${stateDir})\n`);
  return found !== undefined;
}

/** The state directory is private to its user. */
function openState(directory: string): string[] {
  try {
    const created = mkdirSync(directory, { recursive: true, mode: 0o700 });
    if (created !== undefined) chmodSync(directory, 0o700);
    const open = statSync(directory).mode & 0o077;
    return open ? [`other users of this machine can read ${directory}; run: chmod 700 ${directory}`] : [];
  } catch (thrown) {
    throw new InterlaneError(
      'STATE_UNUSABLE',
      `state directory ${directory} cannot be used: ${reasonOf(thrown)}; choose another with --state-dir`,
    );
  }
}

/** The first signal stops the gateway in order. It also removes the handlers, so a second one ends the process at once. */
function stopSignal(terminal: Terminal): Promise<void> {
  return new Promise((resolve) => {
    const undo = (['SIGINT', 'SIGTERM'] as const).map((name) =>
      terminal.onSignal(name, () => {
        for (const off of undo) off();
        resolve();
      }),
    );
  });
}

interface Up {
  paths: Paths;
  config: Config;
  found: Found | undefined;
  /** What answers the default agent, if it is not the scripted one. */
  model: Choice | undefined;
  server: { url: string; signInUrl: string; adminToken: string | undefined };
  defaultId: string;
  notes: string[];
}

/** Where providers whose keys are looked for say what they charge. */
const pricePages: Record<string, string> = {
  anthropic: 'https://www.anthropic.com/pricing',
  openai: 'https://openai.com/api/pricing',
  google: 'https://ai.google.dev/gemini-api/docs/pricing',
  openrouter: 'https://openrouter.ai/models',
};

/** Which model answers, what it costs, and how to change it. */
function modelRows({ config, found, model, defaultId }: Up): [string, string][] {
  const off = 'models.discover: false turns this off';
  if (!model) {
    const wish = 'set ANTHROPIC_API_KEY, OPENAI_API_KEY or agents.defaults.model for a real one';
    return [['model', `scripted: it repeats your messages; ${wish}`]];
  }
  const { ref, provider } = model;
  if (model.source !== 'found' || !found)
    return [['model', `${ref} (${model.source === 'agent' ? `agents.list: the model of ${defaultId}` : 'agents.defaults.model'})`]];
  if (found.settings.apiKey === undefined) return [['model', `${ref}, from ${found.by}; free of charge (${off})`]];
  const page = pricePages[provider];
  const prices = page === undefined ? '' : `; its prices: ${page}`;
  const known = config.models.providers[provider]?.models[model.model]?.cost !== undefined;
  const see = known ? '' : ` (set models.providers.${provider}.models.${model.model}.cost to see costs)`;
  return [
    ['model', `${ref}, with ${found.by} of the environment (${off})`],
    ['costs', `billed per token by ${provider}${prices}${see}`],
  ];
}

function screen(terminal: Terminal, up: Up): string {
  const { paths, config, server, defaultId, notes } = up;
  const listed = config.agents.list.map((entry) => entry.name ?? entry.id);
  const agents = listed.length === 0 ? ['main'] : listed;
  const { tools, policy } = config;
  const rows: [string, string][] = [
    ['sign in', `${server.signInUrl}  (once, within ten minutes)`],
    ['address', server.url],
    ['config', paths.configFile ?? `built-in defaults (to change them, write ${paths.usualConfigFile})`],
    ['store', `${paths.stateDir} (SQLite, durability ${config.store.durability})`],
    ['agents', `${agents.join(', ')} (default: ${defaultId})`],
    ...modelRows(up),
    [
      'policy',
      `visibility: ${tools.sessions.visibility}; agent-to-agent: ${tools.agentToAgent.enabled ? 'on' : 'off'}; custom rules: ${policy.rules.length}`,
    ],
  ];
  const lines = [paint(terminal, 'bold', `Interlane ${version}`), '', ...columns(rows), ''];
  if (server.adminToken !== undefined)
    lines.push(
      `Your admin token, for other machines and programs. Store it now; it won't be shown again:`,
      '',
      `  ${server.adminToken}`,
      '',
    );
  if (notes.length > 0) lines.push(paint(terminal, 'yellow', 'warnings:'), ...notes.map((note) => `  ! ${note}`), '');
  const where = paths.stateDir === join(terminal.home, '.interlane') ? '' : ` --state-dir ${paths.stateDir}`;
  lines.push('Try in a second terminal, in this folder:', '');
  for (const command of ['chat', 'send main "hello"', 'tail']) lines.push(`  npx interlane ${command}${where}`);
  lines.push('', 'Up. Press Ctrl-C to stop.', '');
  return lines.join('\n');
}
