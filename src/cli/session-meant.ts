// A session as a person names it → its key; the bare name of an agent is that agent's main session, unless a session has the name.
import type { Client } from '../client/client.ts';
import { oneLine, paint, type Terminal } from './terminal.ts';

/** Returns an unknown name unchanged; the gateway then suggests a similar one. With `create` it opens the session of that name. */
export async function sessionMeant(terminal: Terminal, client: Client, name: string, create = false): Promise<string> {
  if (name.includes(':') && !create) return name;
  const found = await client.call('sessions.resolve', { key: name, allowMissing: true });
  if (found.ok) return found.key;
  if (create) return (await client.call('sessions.create', { key: name })).key;
  const { agents } = await client.call('agents.list');
  const agent = agents.find(({ id }) => id === name.trim().toLowerCase());
  if (!agent) return name;
  const { id, mainSessionKey } = agent;
  terminal.stderr.write(`${paint(terminal, 'gray', oneLine(`(${id} is an agent; using its main session ${mainSessionKey})`))}\n`);
  return mainSessionKey;
}
