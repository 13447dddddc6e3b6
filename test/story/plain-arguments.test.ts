// Commands and reads take plain data: whatever else they depend on they ask for themselves, so that a body can be run again elsewhere.
import { expect, it } from 'vitest';
import { testGateway } from '../harness/gateway.ts';

function strange(value: unknown, path: string): string[] {
  if (value === null || value === undefined || ['string', 'number', 'boolean'].includes(typeof value)) return [];
  if (Array.isArray(value)) return value.flatMap((one, at) => strange(one, `${path}[${at}]`));
  if (typeof value === 'object' && [Object.prototype, null].includes(Object.getPrototypeOf(value) as object | null))
    return Object.entries(value).flatMap(([name, one]) => strange(one, `${path}.${name}`));
  return [path];
}

it('every read and every command that a client starts has plain data for its arguments', async () => {
  const gw = await testGateway({ listen: true });
  const store = gw.inside.store();
  const names = new Set<string>();
  const found: string[] = [];
  const check = (name: string, args: unknown) => {
    names.add(name);
    found.push(...strange(args, name));
  };
  const [read, write] = [store.read.bind(store), store.write.bind(store)];
  store.read = (query, args) => (check(query.name, args), read(query, args));
  store.write = (command, args, options) => (check(command.name, args), write(command, args, options));

  const key = 'agent:main:notes';
  await gw.call('sessions.create', { key, label: 'Notes', message: 'hello', idempotencyKey: 'one' });
  await gw.call('agent.wait', { runId: 'one' });
  await gw.call('sessions.patch', { key, displayName: 'Notes', thinkingLevel: 'low' });
  await gw.call('chat.inject', { sessionKey: key, message: 'by hand' });
  await gw.call('send', { sessionKey: key, channel: 'loopback', to: 'you', message: 'hello', idempotencyKey: 'two' });
  await gw.call('sessions.list', { limit: 50, spawnedBy: key, includeLastMessage: true });
  await gw.call('sessions.resolve', { label: 'Notes' });
  await gw.call('sessions.preview', { keys: [key] });
  const { deltaCursor } = (await gw.call('chat.history', { sessionKey: key })) as { deltaCursor: string };
  await gw.call('chat.history', { sessionKey: key, cursor: deltaCursor });
  await gw.call('runs.list', { key });
  await gw.call('sessions.subscribe', {});
  for (const tool of ['sessions_list', 'sessions_history', 'session_status', 'sessions_search'])
    await gw.call('tools.invoke', {
      tool,
      args: { sessions_history: { sessionKey: key }, sessions_search: { query: 'hello' } }[tool] ?? {},
    });
  await gw.call('guests.join', { name: 'visitor' });
  await gw.call('sessions.reset', { key });
  await gw.call('sessions.delete', { key, force: true });

  expect(found).toEqual([]);
  for (const name of ['open session', 'patch session', 'inject', 'send', 'list sessions', 'history page', 'history after', 'runs page'])
    expect(names).toContain(name);
});
