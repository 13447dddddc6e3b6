// `interlane up`: load the config, start the gateway, print one screen, run until a stop signal.
import { accessSync, chmodSync, constants, mkdirSync, statSync } from 'node:fs';
import { enableCompileCache, flushCompileCache } from 'node:module';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import type { Paths } from '../config/paths.ts';
import { watchConfig } from '../config/change.ts';
import { defaultConfig, loadConfig, type LoadedConfig } from '../config/load.ts';
import type { Config } from '../config/schema.ts';
import { InterlaneError, reasonOf, stateReadOnly, stateUnusable } from '../errors.ts';
import type { Choice, Found } from '../runtimes/model/choice.ts';
import type { Log } from '../observe/log.ts';
import { isLoopback } from '../server/access.ts';
import { isThere } from '../there.ts';
import type { Gateway } from '../embed.ts';
import { running } from './reach.ts';
import { columns, commandLine, paint, visible, type StopSignal, type Terminal } from './terminal.ts';
import { version } from './version.ts';
import type { Warn } from '../warn.ts';

export interface UpFlags {
  host?: string;
  port?: number;
}

export async function up(terminal: Terminal, paths: Paths, { config, places }: LoadedConfig, flags: UpFlags): Promise<void> {
  const listen = listenAt(terminal.env, config, flags, paths.configFile);
  const open = openState(paths.stateDir);
  enableCompileCache(join(paths.stateDir, 'cache')); // the next start is faster
  const [{ startGateway }, { createLog }, { modelHere }] = await Promise.all([
    import('../start.ts'),
    import('../observe/log.ts'),
    import('./config-check.ts'),
  ]);
  const log = createLog({
    level: config.log.level,
    terminal: terminal.stderr.isTTY === true,
    write: (line) => void terminal.stderr.write(visible(line.trimEnd()) + '\n'),
  });
  const warn: Warn = (message, about = {}) => log.warn(about, message);
  // The operator learns from the log why a gateway is gone.
  terminal.onCrash((error) => log.error({ stack: error instanceof Error ? error.stack : undefined }, `gateway ends: ${reasonOf(error)}`));
  let outputLost: string | undefined;
  terminal.onOutputLost((error) => (outputLost = reasonOf(error)));
  const notesNow = () =>
    outputLost === undefined ? [] : [`log cannot be written, and the gateway goes on without it: ${outputLost}; restart it to log again`];
  const found = await modelHere(terminal, config);
  let gateway: Awaited<ReturnType<typeof startGateway>>;
  try {
    gateway = await startGateway(config, { places, stateDir: paths.stateDir, warn, log, listen, found, notes: notesNow });
  } catch (thrown) {
    if (await sayRunning(terminal, paths.stateDir, thrown)) return;
    throw thrown;
  }
  // Listen for signals before printing the screen, so that one right after the last line is not missed.
  const stopped = stopSignal(terminal);
  const { server, defaultAgentId: defaultId } = gateway;
  const notes = [...gateway.warnings, ...open, ...openToOthers(listen.host)];
  const model = gateway.modelOf(defaultId);
  terminal.stdout.write(screen(terminal, { paths, config, found, model, host: listen.host, server: server!, defaultId, notes }));
  flushCompileCache();
  log.info({ url: server!.url, version, pid: process.pid }, 'gateway is up');
  const unwatch = followConfig(paths.configFile ?? paths.usualConfigFile, terminal.env, gateway, log);
  log.info({ signal: await stopped }, 'gateway stops');
  unwatch();
  terminal.stdout.write('Stopping.\n');
  await gateway.close();
  log.info('gateway has stopped');
  terminal.stdout.write('Stopped.\n');
}

const wildcards = new Set(['0.0.0.0', '::']);

/** The addresses at which other machines reach the gateway. */
function reachableAt(host: string, port: number): string[] {
  if (!wildcards.has(host)) return [];
  const addresses = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return addresses
    .filter(({ internal, family, scopeid }) => !internal && (family === 'IPv4' || (host === '::' && scopeid === 0)))
    .map(({ address, family }) => `http://${family === 'IPv4' ? address : `[${address}]`}:${port}`);
}

function openToOthers(host: string): string[] {
  if (isLoopback(host)) return [];
  return [`other machines can connect to ${host}, without encryption; each needs a token, and a proxy with TLS keeps it from being read`];
}

/** Applies a changed or new config file; an invalid one changes nothing. */
function followConfig(
  file: string,
  env: Terminal['env'],
  gateway: Pick<Gateway, 'reload' | 'configRejected' | 'warnings'>,
  log: Log,
): () => void {
  const take = async () => {
    try {
      const { config, places }: LoadedConfig = isThere(file) ? loadConfig(file, env) : { config: defaultConfig() };
      const { applied, restart } = await gateway.reload(config, places);
      for (const warning of gateway.warnings) log.warn(warning);
      if (applied.length > 0) log.warn({ settings: applied.join(', ') }, 'config changed');
      if (restart.length > 0) log.warn({ settings: restart.join(', ') }, `config changed; restart to apply: ${restart.join(', ')}`);
    } catch (thrown) {
      gateway.configRejected(reasonOf(thrown));
      log.error(`config rejected; still using the previous one: ${reasonOf(thrown)}`);
    }
  };
  return watchConfig(file, () => void take());
}

const shortestToken = 24;
const fewestCharacters = 8;

function listenAt(env: Terminal['env'], config: Config, flags: UpFlags, configFile: string | undefined) {
  const token = env['INTERLANE_TOKEN'] || undefined;
  if (token !== undefined && (token.length < shortestToken || new Set(token).size < fewestCharacters))
    throw new InterlaneError(
      'USAGE',
      `INTERLANE_TOKEN is too easy to guess; use at least ${shortestToken} random characters (${fewestCharacters} different ones), or unset it`,
    );
  if (flags.host?.trim() === '')
    throw new InterlaneError('USAGE', '--host is empty; name an address, such as 127.0.0.1, or 0.0.0.0 for all addresses of this machine');
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
    accessSync(directory, constants.R_OK | constants.X_OK);
    if (created !== undefined) chmodSync(directory, 0o700);
    const open = statSync(directory).mode & 0o077;
    requireWritable(directory);
    return open ? [`other users of this machine can read ${directory}; run: chmod 700 ${directory}`] : [];
  } catch (thrown) {
    throw thrown instanceof InterlaneError ? thrown : stateUnusable(directory, thrown);
  }
}

function requireWritable(directory: string): void {
  try {
    accessSync(directory, constants.W_OK);
  } catch (thrown) {
    throw stateReadOnly(directory, thrown);
  }
}

/** The first signal stops the gateway in order. It also removes the handlers, so a second one ends the process at once. */
function stopSignal(terminal: Terminal): Promise<StopSignal> {
  return new Promise((resolve) => {
    const undo = (['SIGINT', 'SIGTERM', 'SIGHUP'] as const).map((name) =>
      terminal.onSignal(name, () => {
        for (const off of undo) off();
        resolve(name);
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
  host: string;
  server: { url: string; port: number; signInLink(): string; adminToken: string | undefined };
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
    const wish = 'for a real one set ANTHROPIC_API_KEY or OPENAI_API_KEY, or models.providers and agents.defaults.model';
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

/** A secret is printed to a person only: where standard output is no terminal, it would stay in a log. */
function screen(terminal: Terminal, up: Up): string {
  const { paths, config, host, server, defaultId, notes } = up;
  const shown = terminal.stdout.isTTY === true;
  const stateDir = paths.stateDir === join(terminal.home, '.interlane') ? undefined : paths.stateDir;
  const command = (words: string) => `npx ${commandLine(words, { stateDir })}`;
  const listed = config.agents.list.map((entry) => entry.name ?? entry.id);
  const agents = listed.length === 0 ? ['main'] : listed;
  const { tools, policy } = config;
  const rows: [string, string][] = [
    ['sign in', shown ? `${server.signInLink()}  (once, within ten minutes)` : `for a link, run: ${command('token sign-in')}`],
    ['address', [server.url, ...reachableAt(host, server.port)].join('  ')],
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
  if (server.adminToken !== undefined && !shown)
    lines.push(`The admin token is not printed to a log. To get one, run: ${command('token rotate admin')}`, '');
  else if (server.adminToken !== undefined)
    lines.push(
      `Your admin token, for other machines and programs. Store it now; it won't be shown again:`,
      '',
      `  ${server.adminToken}`,
      '',
    );
  if (notes.length > 0) lines.push(paint(terminal, 'yellow', 'warnings:'), ...notes.map((note) => `  ! ${note}`), '');
  lines.push('Try in a second terminal, in this folder:', '');
  for (const words of ['chat', 'send main "hello"', 'tail']) lines.push(`  ${command(words)}`);
  lines.push('', 'Up. Press Ctrl-C to stop.', '');
  return lines.join('\n');
}
