// `interlane token …`: manage tokens. A secret is printed once, to standard output only.
import type { Client } from '../client/client.ts';
import { InterlaneError } from '../errors.ts';
import type { Params, Results } from '../protocol/operations/all.ts';
import { sessionMeant } from './session-meant.ts';
import { answer, moment, span, table, visible, type Terminal } from './terminal.ts';

export async function listTokens(terminal: Terminal, client: Client, json?: boolean): Promise<void> {
  const known = await client.call('tokens.list');
  answer(terminal, json, known, () =>
    table(
      terminal,
      ['TOKEN', 'KIND', 'MAY', 'LEVEL', 'MADE', 'LAST USED', 'EXPIRES'],
      known.tokens.map((one) => [
        one.name,
        one.kind,
        one.sessionKey ?? one.scopes.map((scope) => scope.replace('operator.', '')).join(' '),
        one.level,
        moment(terminal, one.createdAt),
        one.lastUsedAt === undefined ? 'never' : moment(terminal, one.lastUsedAt),
        one.expiresAt === undefined ? 'never' : moment(terminal, one.expiresAt),
      ]),
    ),
  );
}

export interface CreateFlags {
  json?: boolean;
  scope?: 'read' | 'write' | 'admin';
  level?: NonNullable<Params<'tokens.create'>['level']>;
  session?: string;
  /** In milliseconds. */
  expires?: number;
}

export async function createToken(terminal: Terminal, client: Client, name: string, flags: CreateFlags): Promise<void> {
  const sessionKey = flags.session === undefined ? undefined : await sessionMeant(terminal, client, flags.session);
  const made = await client.call('tokens.create', {
    name,
    ...(flags.scope === undefined ? {} : { scopes: [`operator.${flags.scope}` as const] }),
    ...(flags.level === undefined ? {} : { level: flags.level }),
    ...(sessionKey === undefined ? {} : { sessionKey }),
    ...(flags.expires === undefined ? {} : { expiresInSeconds: Math.ceil(flags.expires / 1000) }),
  });
  showSecret(terminal, made, flags.json);
}

export async function rotateToken(terminal: Terminal, client: Client, name: string, json?: boolean): Promise<void> {
  showSecret(terminal, await client.call('tokens.rotate', { name }), json);
}

export async function revokeToken(terminal: Terminal, client: Client, name: string, json?: boolean): Promise<void> {
  const ended = await client.call('tokens.revoke', { name });
  if (!ended.revoked) throw new InterlaneError('TOKEN_NOT_FOUND', `token "${name}" does not exist; see: interlane token list`);
  answer(terminal, json, ended, () => `Token "${name}" is revoked and its connections are closed.\n`);
}

export async function signIn(terminal: Terminal, client: Client, json?: boolean): Promise<void> {
  const link = await client.call('tokens.signIn');
  answer(terminal, json, link, () => `${link.url}\n`);
  if (terminal.stdout.isTTY && !json)
    terminal.stderr.write(`Open it in a browser; it works once, for ${span(link.expiresAt - terminal.now() + 500)}.\n`);
}

/** Prints the bare secret, so that `$(interlane token create ci)` works. */
function showSecret(terminal: Terminal, made: Results['tokens.create'], json?: boolean): void {
  answer(terminal, json, made, () => `${made.token}\n`);
  if (json) return;
  if (terminal.stdout.isTTY) terminal.stderr.write("Store it now; it won't be shown again. Use it with --token or INTERLANE_TOKEN.\n");
  const { name, expiresAt } = made.view;
  if (expiresAt !== undefined)
    terminal.stderr.write(
      `Token "${visible(name)}" works until ${new Date(expiresAt).toISOString().slice(0, 16).replace('T', ' ')} UTC.\n`,
    );
}
