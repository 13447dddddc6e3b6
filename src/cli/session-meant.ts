// A session as a person names it → its key. Every command that takes a session asks here.
import type { Client } from '../client/client.ts';
import { InterlaneError } from '../errors.ts';
import { agentNamed } from '../rules/agents.ts';
import { oneLine, paint, type Terminal } from './terminal.ts';

/**
 * A bare name is `main`, else an agent, else a session: the name of an agent means that agent's main session, also if an older session has
 * the name; the full key reaches that one. Returns an unknown name unchanged; the gateway then suggests a similar one. With `create` it
 * opens the session of that name.
 */
export async function sessionMeant(terminal: Terminal, client: Client, name: string, create = false): Promise<string> {
  if (name.trim() === '') throw new InterlaneError('USAGE', 'session is empty; name one, for example main; see: interlane sessions');
  if (name.includes(':') && !create) return name;
  const { agents, mainKey } = await client.call('agents.list');
  const agent = agentNamed(
    agents.map(({ id }) => id),
    mainKey,
    name,
  );
  if (agent !== undefined) {
    const { mainSessionKey } = agents.find(({ id }) => id === agent)!;
    sayAgent(terminal, agent, mainSessionKey);
    return mainSessionKey;
  }
  const found = await client.call('sessions.resolve', { key: name, allowMissing: true });
  if (found.ok) return found.key;
  return create ? (await client.call('sessions.create', { key: name })).key : name;
}

export function sayAgent(terminal: Terminal, id: string, mainSessionKey: string): void {
  terminal.stderr.write(`${paint(terminal, 'gray', oneLine(`(${id} is an agent; using its main session ${mainSessionKey})`))}\n`);
}
