// Commands and reads take plain data: whatever else they depend on they ask for themselves, so that a body can be run again elsewhere.
import { expect, it, vi } from 'vitest';
import { RealClock } from '../clock.ts';
import { openDoor, Wire } from './door.ts';

// Nothing here depends on how long it takes.
vi.setConfig({ testTimeout: 60_000 });

function strange(value: unknown, path: string): string[] {
  if (value === null || value === undefined || ['string', 'number', 'boolean'].includes(typeof value)) return [];
  if (Array.isArray(value)) return value.flatMap((one, at) => strange(one, `${path}[${at}]`));
  if (typeof value === 'object' && [Object.prototype, null].includes(Object.getPrototypeOf(value) as object | null))
    return Object.entries(value).flatMap(([name, one]) => strange(one, `${path}.${name}`));
  return [path];
}

it('every read and every command that a client starts has plain data for its arguments', async () => {
  const door = await openDoor(new RealClock(), {}, [{ steps: [{ say: 'hello' }] }]);
  const { store } = door.stage.gateway;
  const names = new Set<string>();
  const found: string[] = [];
  const check = (name: string, args: unknown) => {
    names.add(name);
    found.push(...strange(args, name));
  };
  const [read, write] = [store.read.bind(store), store.write.bind(store)];
  store.read = (query, args) => (check(query.name, args), read(query, args));
  store.write = (command, args, options) => (check(command.name, args), write(command, args, options));

  const wire = await Wire.connect(door.port, door.admin);
  const key = 'agent:main:notes';
  await wire.call('sessions.create', { key, label: 'Notes', message: 'hello', idempotencyKey: 'one' });
  await wire.call('agent.wait', { runId: 'one' });
  await wire.call('sessions.patch', { key, displayName: 'Notes', thinkingLevel: 'low' });
  await wire.call('chat.inject', { sessionKey: key, message: 'by hand' });
  await wire.call('send', { sessionKey: key, channel: 'loopback', to: 'you', message: 'hello', idempotencyKey: 'two' });
  await wire.call('sessions.list', { limit: 50, spawnedBy: key, includeLastMessage: true });
  await wire.call('sessions.resolve', { label: 'Notes' });
  await wire.call('sessions.preview', { keys: [key] });
  const { deltaCursor } = (await wire.call('chat.history', { sessionKey: key })) as { deltaCursor: string };
  await wire.call('chat.history', { sessionKey: key, cursor: deltaCursor });
  await wire.call('runs.list', { key });
  await wire.call('sessions.subscribe', {});
  for (const tool of ['sessions_list', 'sessions_history', 'session_status', 'sessions_search'])
    await wire.call('tools.invoke', {
      tool,
      args: { sessions_history: { sessionKey: key }, sessions_search: { query: 'hello' } }[tool] ?? {},
    });
  await wire.call('guests.join', { name: 'visitor' });
  await wire.call('sessions.reset', { key });
  await wire.call('sessions.delete', { key, force: true });

  expect(found).toEqual([]);
  for (const name of ['open session', 'patch session', 'inject', 'send', 'list sessions', 'history page', 'history after', 'runs page'])
    expect(names).toContain(name);
});
