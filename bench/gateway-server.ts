// The gateway in a process of its own, for clients to be set upon.
import { Connection } from '../src/store/sqlite/database.ts';
import { cpuMs, epochNow, type Address, type ServerWish, type Spent } from './raw-server.ts';
import { start } from './setting.ts';
import { answerParent } from './talk.ts';

let committed = 0;
/** Whoever else hears of a commit may have acted on it before us; the database is asked first. */
function watchCommits(): void {
  const answer = Connection.prototype.answer;
  Connection.prototype.answer = function (query) {
    const result = answer.call(this, query);
    if (query.sql === 'COMMIT') committed = epochNow();
    return result;
  };
}

export async function serveGateway(directory: string): Promise<void> {
  const token = 'a-secret-that-is-long-enough';
  const gateway = await start(directory, 8, {}, { search: true, listen: { host: '127.0.0.1', port: 0, token, version: 'bench' } });
  watchCommits();
  let at: number[] = [];
  gateway.store.follow((events) => {
    for (const event of events) if (event.kind === 'entry') at[event.message.seq] = committed;
  });
  answerParent((wish: ServerWish) => {
    if ('open' in wish) return { url: gateway.server!.url, token } satisfies Address;
    const spent: Spent = { cpuMs: cpuMs(), at };
    at = [];
    return spent;
  });
}
