// `interlane status` and `interlane agents`: what the gateway is doing, and its agents.
import type { Client } from '../client/client.ts';
import { answer, columns, count, oneLine, paint, span, table, type Terminal } from './terminal.ts';

export async function status(terminal: Terminal, client: Client, json?: boolean): Promise<void> {
  const now = await client.call('status');
  const url = client.url.replace(/^ws/, 'http').replace(/\/$/, '');
  answer(terminal, json, { url, ...now }, () => {
    const { runs, deliveries, store } = now;
    const rows: [string, string][] = [
      ['agents', `${now.agents} (default: ${now.defaultAgentId})`],
      ...line('runs', runs && `${runs.running} running, ${runs.queued} queued, ${runs.waiting} waiting`),
      ...line('deliveries', deliveries && `${deliveries.pending} pending, ${deliveries.unknown} unknown, ${deliveries.dead} dead`),
      ['connections', String(now.connections)],
      ['store', `SQLite, durability ${store.durability}${store.path === undefined ? '' : `, in ${store.path}`}`],
      ['model', now.model],
    ];
    const title = `Interlane ${now.version} at ${url}, up ${span(now.uptimeMs)}${now.pid === undefined ? '' : ` (process ${now.pid})`}`;
    const { restart, rejected } = now.config;
    const said = [
      ...(rejected === undefined ? [] : [`the changed config was rejected, and the previous one is still used: ${rejected}`]),
      ...(restart.length === 0 ? [] : [`the config has changed; restart to apply: ${restart.join(', ')}`]),
      ...now.warnings,
    ];
    const notes = said.flatMap((warning) => {
      const [first = '', ...more] = warning.split('\n').filter((line) => line.trim() !== '');
      return [`  ! ${oneLine(first)}`, ...more.map((line) => `    ${oneLine(line)}`)];
    });
    const told = said.length === 0 ? [] : ['', paint(terminal, 'yellow', `${count(said.length, 'warning')}:`), ...notes];
    return [paint(terminal, 'bold', title), '', ...columns(rows.map(([name, value]) => [name, oneLine(value)])), ...told, ''].join('\n');
  });
}

/** What a token below RESTRICTED does not get is left out. */
const line = (name: string, value: string | undefined): [string, string][] => (value === undefined ? [] : [[name, value]]);

export async function agents(terminal: Terminal, client: Client, json?: boolean): Promise<void> {
  const known = await client.call('agents.list');
  answer(terminal, json, known, () =>
    table(
      terminal,
      ['AGENT', 'NAME', 'MAIN SESSION', ''],
      known.agents.map(({ id, name, mainSessionKey }) => [id, name ?? '', mainSessionKey, id === known.defaultId ? 'default' : '']),
    ),
  );
}
