// `interlane doctor`: checks everything a gateway needs and suggests a fix for each problem. Changes nothing.
import { accessSync, constants, existsSync, readFileSync, statfsSync, statSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { defaultConfig, loadConfig } from '../config/load.ts';
import { findPaths, type PathFlags, type Paths } from '../config/paths.ts';
import { errorTable, InterlaneError } from '../errors.ts';
import type { CliFile } from '../server/cli-file.ts';
import type { Setup } from '../setup.ts';
import { inspectStore, isHeld } from '../store/sqlite/inspect.ts';
import { databaseName } from '../store/sqlite/files.ts';
import { isThere } from '../there.ts';
import { setupHere } from './config-check.ts';
import { bad, note, ok, type Finding } from './doctor-finding.ts';
import { checkRules } from './doctor-rules.ts';
import { storeTrouble } from '../observe/store-health.ts';
import { searchTrouble } from '../store/search.ts';
import { reached, running, unaskable } from './reach.ts';
import { answer, oneLine, paint, size, type Terminal } from './terminal.ts';

export interface DoctorFlags extends PathFlags {
  port?: number;
  json?: boolean;
}

const neededNode = 24;
const littleSpace = 1024 ** 3;
const noSpace = 100 * 1024 ** 2;

/** Returns the exit status of the first problem, or 0. */
export async function doctor(terminal: Terminal, flags: DoctorFlags): Promise<number> {
  const named = findPaths(flags, terminal.env, terminal.home);
  const own = await running(named.stateDir);
  // For a running gateway, check the config it runs on, unless a flag names another.
  const paths = { ...named, configFile: named.configFile ?? own?.config };
  const { setup, findings: configFindings } = await checkConfig(terminal, paths);
  const { host, port } = (setup?.config ?? defaultConfig()).gateway;
  const store = checkStore(terminal, paths.stateDir);
  const findings = [
    checkNode(),
    ...configFindings,
    ...(setup ? checkRules(setup.config) : []),
    ...checkState(paths.stateDir),
    store,
    ...(store.state !== 'bad' ? await checkStored(terminal, paths.stateDir, own !== undefined) : []),
    ...(await checkGateway(terminal, paths.stateDir, own, setup?.warnings ?? [])),
    await checkPort(host, flags.port, portOf(terminal) ?? port, own),
    checkSpace(paths.stateDir),
    ...(setup ? [await checkModel(setup)] : []),
  ];
  const broken = findings.find(({ state }) => state === 'bad');
  answer(terminal, flags.json, { ok: broken === undefined, findings }, () => render(terminal, findings));
  return broken?.code === undefined ? 0 : errorTable[broken.code].exit;
}

/** Asks the service of the model; the request is free. */
async function checkModel({ config, models, world }: Setup): Promise<Finding> {
  const [choice] = models.choices(world.agents.defaultId, undefined);
  if (!choice)
    return note(
      'model',
      'no model is configured or found; the scripted model answers',
      'set ANTHROPIC_API_KEY or OPENAI_API_KEY, or models.providers and agents.defaults.model',
    );
  const { ref, provider } = choice;
  const { probe } = await import('../runtimes/model/probe.ts');
  const wrong = await probe(models.service(provider)!, fetch);
  if (wrong === undefined) return ok('model', `${ref} answers${choice.source === 'found' ? ' (found on this machine)' : ''}`);
  const fix = Object.hasOwn(config.models.providers, provider)
    ? `check models.providers.${provider}: its baseUrl and apiKey`
    : 'check the key in the environment, or set agents.defaults.model';
  return bad('model', 'MODEL_FAILED', `${ref}: ${wrong}`, fix);
}

function render(terminal: Terminal, findings: Finding[]): string {
  const marks = { ok: paint(terminal, 'green', '✓'), note: paint(terminal, 'yellow', '·'), bad: paint(terminal, 'red', '✗') };
  const width = Math.max(...findings.map(({ what }) => what.length));
  const lines = findings.flatMap(({ what, state, says, fix }) => {
    const [first = '', ...more] = says.split('\n').filter((line) => line.trim() !== '');
    const below = [...more, ...(fix === undefined ? [] : [`→ ${fix}`])];
    return [`${marks[state]} ${what.padEnd(width)}  ${oneLine(first)}`, ...below.map((line) => `${' '.repeat(width + 4)}${oneLine(line)}`)];
  });
  const broken = findings.filter(({ state }) => state === 'bad').length;
  const sum = broken === 0 ? paint(terminal, 'green', 'Nothing is broken.') : paint(terminal, 'red', `${broken} broken.`);
  return [...lines, '', sum, ''].join('\n');
}

function checkNode(): Finding {
  const found = process.versions.node;
  return Number.parseInt(found, 10) >= neededNode
    ? ok('node', found)
    : bad('node', 'UNAVAILABLE', `${found} is too old`, `install Node.js ${neededNode} or newer`);
}

/** The same check as of `up` and `config check`. */
async function checkConfig(terminal: Terminal, paths: Paths): Promise<{ setup?: Setup; findings: Finding[] }> {
  try {
    const loaded = paths.configFile === undefined ? { config: defaultConfig() } : loadConfig(paths.configFile, terminal.env);
    const setup = await setupHere(terminal, paths, loaded);
    const says = paths.configFile ?? `built-in defaults; there is no ${paths.usualConfigFile}`;
    return { setup, findings: [ok('config', says), ...setup.warnings.map((warning) => note('config', warning))] };
  } catch (thrown) {
    if (!(thrown instanceof InterlaneError)) throw thrown;
    return { findings: [bad('config', thrown.code, thrown.message, 'fix the file; "interlane config docs" lists every setting')] };
  }
}

function checkState(stateDir: string): Finding[] {
  const found = statSync(stateDir, { throwIfNoEntry: false });
  if (!found) return [ok('state', `${stateDir} is not there yet; the first start creates it`)];
  if (!found.isDirectory()) return [bad('state', 'STATE_UNUSABLE', `${stateDir} is not a directory`, 'choose another with --state-dir')];
  const own = process.getuid?.();
  if (own !== undefined && own !== 0 && found.uid !== own)
    return [bad('state', 'STATE_UNUSABLE', `${stateDir} belongs to another user`, `run: sudo chown -R ${own} ${stateDir}`)];
  if ((found.mode & 0o700) !== 0o700)
    return [bad('state', 'STATE_UNUSABLE', `you cannot read and write ${stateDir}`, `run: chmod 700 ${stateDir}`)];
  const locked = ['', 'interlane.db', 'interlane.db-wal', 'lock.db'].flatMap((name) => readOnly(join(stateDir, name)))[0];
  if (locked?.why === 'EROFS')
    return [
      bad(
        'state',
        'STATE_UNUSABLE',
        `${locked.file} is on a disk that is mounted read-only`,
        'mount it for writing, or choose another with --state-dir; "interlane backup" and "interlane export" work here',
      ),
    ];
  if (locked)
    return [
      bad(
        'state',
        'STATE_UNUSABLE',
        `${locked.file} cannot be written`,
        'make it writable (chmod u+w), or choose another with --state-dir',
      ),
    ];
  const open = (file: string) => (modeOf(file) & 0o077) !== 0;
  if (open(stateDir)) return [note('state', `other users of this machine can read ${stateDir}`, `run: chmod 700 ${stateDir}`)];
  const names = ['interlane.db', 'search.db', 'cli.json'].map((name) => join(stateDir, name)).filter(open);
  if (names.length > 0) return [note('state', `other users can read ${names.join(', ')}`, `run: chmod 600 ${names.join(' ')}`)];
  return [ok('state', `${stateDir}, private to you`)];
}

/** 0 for a file that is not there or cannot be looked at. */
function modeOf(file: string): number {
  try {
    return statSync(file).mode;
  } catch {
    return 0;
  }
}

/** By its mode, and by the system, which knows of disks that are mounted for reading. */
function readOnly(file: string): { file: string; why: string | undefined }[] {
  const found = statSync(file, { throwIfNoEntry: false });
  if (!found) return [];
  try {
    accessSync(file, constants.W_OK);
    return (found.mode & 0o200) === 0 ? [{ file, why: 'mode' }] : [];
  } catch (thrown) {
    return [{ file, why: (thrown as NodeJS.ErrnoException).code }];
  }
}

function checkStore(terminal: Terminal, stateDir: string): Finding {
  try {
    const found = inspectStore(stateDir, (bytes) => terminal.stderr.write(`Checking the database (${size(bytes)})…\n`));
    if (!found) return ok('store', 'nothing is stored yet');
    if (!found.complete)
      return note(
        'store',
        `${found.file}: quick check OK (${size(found.bytes)}); the indexes of a database of this size are not checked here`,
        'make a backup, which checks everything: interlane backup <file>',
      );
    return ok('store', `${found.file}: database OK (${size(found.bytes)})`);
  } catch (thrown) {
    if (!(thrown instanceof InterlaneError)) throw thrown;
    const [says, ...fix] = thrown.message.split('; ');
    return bad('store', thrown.code, says!, fix.join('; ') || 'restore a backup with "interlane restore", or choose another --state-dir');
  }
}

/** What is stored, if there is anything. A store of an older version is checked after its first start. */
async function checkStored(terminal: Terminal, stateDir: string, isRunning: boolean): Promise<Finding[]> {
  if (!isThere(join(stateDir, databaseName))) return [];
  const { checkWork } = await import('./doctor-state.ts');
  try {
    return checkWork(stateDir, terminal.now(), isRunning);
  } catch (thrown) {
    if (!(thrown instanceof InterlaneError)) throw thrown;
    return [note('work', thrown.message)];
  }
}

/** `said`: warnings that the config has already given. */
async function checkGateway(terminal: Terminal, stateDir: string, own: CliFile | undefined, said: string[]): Promise<Finding[]> {
  if (own) {
    const where = `running at ${own.url} (process ${own.pid})`;
    const { warnings, config } = await reached(terminal, { ...own, stateDir }, (client) => client.call('status', {}));
    const { restart, rejected } = config;
    const trouble = warnings.find((warning) => warning.startsWith(storeTrouble));
    const unsearched = warnings.find((warning) => warning.startsWith(searchTrouble));
    return [
      trouble === undefined ? ok('gateway', where) : bad('gateway', 'STORE_FAILED', `${where}, but its ${trouble}`, 'see its log'),
      ...(rejected === undefined
        ? []
        : [note('gateway', `it rejected the changed config: ${rejected}`, 'fix the file; it uses the config before')]),
      ...(restart.length === 0
        ? []
        : [note('gateway', `the config has changed: ${restart.join(', ')}`, 'restart the gateway to apply it')]),
      ...(unsearched === undefined ? [] : [note('search', unsearched, 'check the disk and who owns search.db in the state directory')]),
      ...warnings.filter((one) => one !== trouble && one !== unsearched && !said.includes(one)).map((one) => note('gateway', one)),
    ];
  }
  const unread = unaskable(stateDir);
  if (unread !== undefined) return [note('gateway', `it cannot be asked: ${unread}`, 'use the account that runs the gateway')];
  if (!isHeld(stateDir)) return [ok('gateway', 'not running; start it with: interlane up')];
  const holder = holderOf(stateDir);
  const fix =
    holder === undefined ? 'stop the process that uses it' : `wait a moment if it is starting or importing; else stop it: kill ${holder}`;
  const says = `${holder === undefined ? 'a process' : `process ${holder}`} uses the state directory and does not answer`;
  return [bad('gateway', 'STATE_IN_USE', says, fix)];
}

function holderOf(stateDir: string): number | undefined {
  try {
    const { pid } = JSON.parse(readFileSync(join(stateDir, 'holder.json'), 'utf8')) as { pid?: unknown };
    return typeof pid === 'number' ? pid : undefined;
  } catch {
    return undefined;
  }
}

function portOf({ env }: Terminal): number | undefined {
  const written = env['INTERLANE_PORT'] ?? '';
  return /^\d{1,5}$/.test(written) && Number(written) <= 65_535 ? Number(written) : undefined;
}

/** A running gateway has its port, whatever the config says by now; a port that a flag names is checked all the same. */
async function checkPort(host: string, asked: number | undefined, usual: number, own: CliFile | undefined): Promise<Finding> {
  const used = own && Number(URL.parse(own.url)?.port);
  if (used !== undefined && (asked ?? used) === used) return ok('port', `${used}, used by this gateway`);
  const port = asked ?? usual;
  const failed = await new Promise<NodeJS.ErrnoException | undefined>((resolve) => {
    const server = createServer().once('error', resolve);
    server.listen({ host, port }, () => server.close(() => resolve(undefined)));
  });
  if (!failed) return ok('port', port === 0 ? 'any free port' : `${port} on ${host} is free`);
  const taken = failed.code === 'EADDRINUSE';
  const says = taken ? `${port} on ${host} is in use by another program` : `${port} on ${host} cannot be used: ${failed.message}`;
  return bad('port', 'PORT_UNUSABLE', says, 'choose another: interlane up --port <number>, or gateway.port in the config');
}

function checkSpace(stateDir: string): Finding {
  let directory = stateDir;
  while (!existsSync(directory)) directory = join(directory, '..');
  const { bavail, bsize } = statfsSync(directory);
  const free = bavail * bsize;
  const says = `${(free / 1e9).toFixed(1)} GB free`;
  const fix = 'free some space, or move the state with --state-dir';
  if (free < noSpace) return bad('disk', 'STORE_FAILED', says, fix);
  return free < littleSpace ? note('disk', says, fix) : ok('disk', says);
}
