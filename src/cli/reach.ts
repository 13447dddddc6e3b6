// Flags, environment and the file of the running gateway → a connection, or an error that names what was tried and what to do.
import { readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { connect, type Client } from '../client/client.ts';
import { cliFile, findPaths } from '../config/paths.ts';
import { InterlaneError, reasonOf, type ErrorCode } from '../errors.ts';
import type { CliFile } from '../server/cli-file.ts';
import { isThere, requireReadable } from '../there.ts';
import type { Terminal } from './terminal.ts';
import { version } from './version.ts';

export interface ReachFlags {
  url?: string | undefined;
  token?: string | undefined;
  stateDir?: string | undefined;
  json?: boolean | undefined;
}

const patienceMs = 10_000;

/** Calls with a connection that is closed afterwards. */
export async function reached<R>(terminal: Terminal, flags: ReachFlags, work: (client: Client) => Promise<R>): Promise<R> {
  const client = await reach(terminal, flags);
  try {
    return await work(client);
  } finally {
    client.close();
  }
}

/** `caps`: capabilities to ask for. */
export async function reach(terminal: Terminal, flags: ReachFlags, signal?: AbortSignal, caps: string[] = []): Promise<Client> {
  const { url, token, found } = findGateway(terminal, flags);
  const limit = AbortSignal.timeout(patienceMs);
  try {
    return await connect({
      url,
      token,
      client: { id: 'cli', mode: 'cli', version, platform: process.platform },
      caps: ['session-scoped-events', ...caps],
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
  } catch (thrown) {
    throw await refusal(thrown, url, token, found);
  }
}

/** Returns the address of the gateway that runs on this state directory, if it answers and this user may know it. */
export async function running(stateDir: string): Promise<CliFile | undefined> {
  try {
    const found = readCliFile(stateDir);
    if (!found) return undefined;
    const signal = AbortSignal.timeout(patienceMs);
    const client = await connect({ ...found, client: { id: 'cli', mode: 'cli', version, platform: process.platform }, signal });
    await client.call('health', {}, { signal }).finally(() => client.close());
    return found;
  } catch {
    return undefined;
  }
}

/** Why a gateway that may run on this state directory cannot be asked; undefined if its file can be read, or there is none. */
export function unaskable(stateDir: string): string | undefined {
  try {
    readCliFile(stateDir);
    return undefined;
  } catch (thrown) {
    return reasonOf(thrown).split('; ')[0];
  }
}

/** Calls with a connection to the gateway that runs on the state directory; undefined when none does. */
export async function reachedIfRunning<R>(
  terminal: Terminal,
  stateDir: string,
  work: (client: Client) => Promise<R>,
): Promise<R | undefined> {
  const found = await running(stateDir);
  return found && reached(terminal, { url: found.url, token: found.token, stateDir }, work);
}

interface Found {
  url: string;
  token: string | undefined;
  /** The file that named it, if no flag did. */
  found?: CliFile & { file: string };
}

/** The address alone, for callers with their own token. The secret in the file is for the operator, not for guests. */
export const gatewayUrl = (terminal: Terminal, flags: Pick<ReachFlags, 'url' | 'stateDir'>): string => findGateway(terminal, flags).url;

function findGateway(terminal: Terminal, flags: ReachFlags): Found {
  const { stateDir } = findPaths({ stateDir: flags.stateDir }, terminal.env, terminal.home);
  const named = flags.url || terminal.env['INTERLANE_URL'] || undefined;
  const token = flags.token || terminal.env['INTERLANE_TOKEN'] || undefined;
  const file = readCliFile(stateDir);
  if (named !== undefined) {
    // Only the gateway that wrote the file may receive its secret.
    const own = file && URL.parse(named)?.host === URL.parse(file.url)?.host ? file.token : undefined;
    return { url: named, token: token ?? own };
  }
  if (!file)
    throw new InterlaneError(
      'UNAVAILABLE',
      `gateway was not found: there is no ${cliFile(stateDir)}, which a running gateway writes; start it with: interlane up (or choose one with --url or --state-dir)`,
    );
  return { url: file.url, token: token ?? file.token, ...(token === undefined ? { found: { ...file, file: cliFile(stateDir) } } : {}) };
}

function readCliFile(stateDir: string): CliFile | undefined {
  try {
    const { url, token, pid, config } = JSON.parse(readFileSync(cliFile(stateDir), 'utf8')) as Partial<CliFile>;
    const usable = typeof url === 'string' && typeof token === 'string' && typeof pid === 'number';
    return usable ? { url, token, pid, ...(typeof config === 'string' ? { config } : {}) } : undefined;
  } catch {
    // A file that is gone, or half written, is of no gateway; one that may not be read is told.
    if (isThere(cliFile(stateDir))) requireReadable(cliFile(stateDir), 'file');
    return undefined;
  }
}

const refusals: ReadonlySet<ErrorCode> = new Set(['UNAUTHORIZED', 'AUTH_RATE_LIMITED']);

async function refusal(thrown: unknown, url: string, token: string | undefined, found: Found['found']): Promise<unknown> {
  if (!(thrown instanceof InterlaneError)) return thrown;
  if (found) {
    // The gateway was killed, or has just started and not written its file yet.
    if (thrown.code !== 'UNAVAILABLE' && !refusals.has(thrown.code)) return thrown;
    const why = `it is named in ${found.file}, written by process ${found.pid}`;
    const { isHeld } = await import('../store/sqlite/inspect.ts');
    if (isHeld(dirname(found.file)))
      return new InterlaneError(
        'UNAVAILABLE',
        `gateway does not answer at ${url} (${why}), but a process still uses its state directory; wait a moment if it is starting or busy, else continue or stop process ${found.pid}`,
      );
    return new InterlaneError('UNAVAILABLE', `gateway does not answer at ${url} (${why}); start it with: interlane up`);
  }
  if (thrown.code === 'UNAUTHORIZED') {
    const what =
      token === undefined
        ? 'needs a token; pass one with --token or INTERLANE_TOKEN'
        : 'rejected the token; create one with: interlane token create';
    return new InterlaneError('UNAUTHORIZED', `gateway at ${url} ${what}`);
  }
  if (thrown.code !== 'UNAVAILABLE') return thrown;
  return new InterlaneError('UNAVAILABLE', `gateway does not answer at ${url}; check the address, or start it with: interlane up`);
}
