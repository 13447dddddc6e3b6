// `interlane up`: load, print one screen, stay until told to stop.
import { chmodSync, mkdirSync, statSync } from 'node:fs';
import type { Paths } from '../config/paths.ts';
import type { Config } from '../config/schema.ts';
import { InterlaneError, reasonOf } from '../errors.ts';
import { columns, paint, visible, type Terminal } from './terminal.ts';
import { version } from './version.ts';

export async function up(terminal: Terminal, paths: Paths, config: Config, warnings: string[]): Promise<void> {
  const { startGateway } = await import('../gateway.ts');
  const open = openState(paths.stateDir);
  const gateway = await startGateway(config, {
    stateDir: paths.stateDir,
    warn: (message) => terminal.stderr.write(`! ${visible(message)}\n`),
  });
  const notes = [...warnings, ...gateway.warnings, ...open];
  // Listen for the stop before saying that we are up, so that a signal right after the last line is not missed.
  const stopped = stopSignal(terminal);
  terminal.stdout.write(screen(terminal, paths, config, gateway.world.agents.defaultId, notes));
  await stopped;
  terminal.stdout.write('Stopping.\n');
  await gateway.close();
  terminal.stdout.write('Stopped.\n');
}

/** The state directory is private to its user. */
function openState(directory: string): string[] {
  try {
    const created = mkdirSync(directory, { recursive: true, mode: 0o700 });
    if (created !== undefined) chmodSync(directory, 0o700);
    const open = statSync(directory).mode & 0o077;
    return open ? [`${directory} can be read by other users of this machine; run: chmod 700 ${directory}`] : [];
  } catch (thrown) {
    throw new InterlaneError(
      'STATE_UNUSABLE',
      `state directory ${directory} cannot be used: ${reasonOf(thrown)}; choose another with --state-dir`,
    );
  }
}

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

function screen(terminal: Terminal, paths: Paths, config: Config, defaultId: string, notes: string[]): string {
  const listed = config.agents.list.map((entry) => entry.name ?? entry.id);
  const agents = listed.length === 0 ? ['main'] : listed;
  const { session, tools, policy, bindings } = config;
  const rows: [string, string][] = [
    ['config', paths.configFile ?? `built-in defaults (to change them, write ${paths.usualConfigFile})`],
    ['state', `${paths.stateDir} (SQLite, durability ${config.store.durability})`],
    ['agents', `${agents.join(', ')} (default: ${defaultId})`],
    [
      'routing',
      `${count(bindings.length, 'binding')}; direct chats: ${session.scope === 'global' ? 'one session for all' : session.dmScope}`,
    ],
    [
      'policy',
      `a session sees: ${tools.sessions.visibility}; agent to agent: ${tools.agentToAgent.enabled ? 'on' : 'off'}; ${count(policy.rules.length, 'rule')} of yours`,
    ],
  ];
  const lines = [paint(terminal, 'bold', `Interlane ${version}`), '', ...columns(rows), ''];
  if (notes.length > 0) lines.push(paint(terminal, 'yellow', 'worth a look:'), ...notes.map((note) => `  ! ${note}`), '');
  lines.push(
    'Sessions, runs and exchanges are durable. Connections come next: websocket, HTTP and chat channels are not there yet.',
    'Try in a second terminal, in this folder:',
    '',
    `  npx interlane explain route '{"channel":"telegram","peer":{"kind":"direct","id":"42"}}'`,
    '  npx interlane demo',
    '',
    'Up. Press Ctrl-C to stop.',
    '',
  );
  return lines.join('\n');
}

const count = (n: number, noun: string) => `${n} ${noun}${n === 1 ? '' : 's'}`;
