// The gateway in a process of its own, for clients to be set upon.
import { cpuMs, epochNow, type Address, type ServerWish, type Spent } from './raw-server.ts';
import { start } from './setting.ts';
import { answerParent } from './talk.ts';

export async function serveGateway(directory: string): Promise<void> {
  const token = 'a-secret-that-is-long-enough';
  const gateway = await start(directory, 8, {}, { search: true, listen: { host: '127.0.0.1', port: 0, token, version: 'bench' } });
  let at: number[] = [];
  gateway.store.onCommit((events) => {
    const now = epochNow();
    for (const event of events) if (event.kind === 'entry') at[event.message.seq] = now;
  });
  answerParent((wish: ServerWish) => {
    if ('open' in wish) return { url: gateway.server!.url, token } satisfies Address;
    const spent: Spent = { cpuMs: cpuMs(), at };
    at = [];
    return spent;
  });
}
