// `interlane join <name>`: makes a guest, and prints what its harness needs to know. The token is never part of a command line.
import type { Client } from '../client/client.ts';
import type { Params, Results } from '../protocol/operations/all.ts';
import { answer, paint, type Terminal } from './terminal.ts';

type Joined = Results['guests.join'];

export interface JoinFlags {
  json?: boolean;
  agent?: string;
  see?: NonNullable<Params<'guests.join'>['see']>;
  rotate?: boolean;
}

export async function join(terminal: Terminal, client: Pick<Client, 'call'>, name: string, flags: JoinFlags): Promise<void> {
  const { json, agent, see, rotate } = flags;
  const joined = await client.call('guests.join', {
    name,
    ...(agent === undefined ? {} : { agentId: agent }),
    ...(see === undefined ? {} : { see }),
    ...(rotate === undefined ? {} : { rotate }),
  });
  answer(terminal, json, joined, () => page(terminal, joined));
}

function page(terminal: Terminal, joined: Joined): string {
  const bold = (text: string) => paint(terminal, 'bold', text);
  return [
    `${bold(joined.key)} is ready. It can see: ${sight[joined.see]}.`,
    '',
    `${bold('1. Its token')}. Store it now; it won't be shown again. Set it where you start the harness; to revoke it: interlane token revoke ${joined.tokenName}`,
    '',
    `   export INTERLANE_GUEST_TOKEN=${joined.token}`,
    '',
    bold('2. The configuration of your harness'),
    '',
    ...harnesses(joined.url).flatMap(({ name, file, text }) => [`   ${bold(name)} (${file}):`, ...text.map((line) => `     ${line}`), '']),
    bold('3. What to tell it'),
    '',
    `   ${joined.sentence}`,
    '',
  ].join('\n');
}

const sight: Record<Joined['see'], string> = {
  self: 'only itself',
  tree: 'itself and the sessions it spawns (use --see agent or --see all for more)',
  agent: 'the sessions of its agent',
  all: 'all sessions (those of other agents if tools.agentToAgent allows it)',
};

interface Harness {
  name: string;
  file: string;
  text: string[];
}

/** Each reads the token from the environment in its own words. */
function harnesses(url: string): Harness[] {
  const json = (value: unknown) => JSON.stringify(value, null, 2).split('\n');
  const headers = (token: string) => ({ Authorization: `Bearer ${token}` });
  return [
    {
      name: 'Claude Code',
      file: '.mcp.json',
      text: json({ mcpServers: { interlane: { type: 'http', url, headers: headers('${INTERLANE_GUEST_TOKEN}') } } }),
    },
    {
      name: 'Codex',
      file: '~/.codex/config.toml',
      text: ['[mcp_servers.interlane]', `url = ${JSON.stringify(url)}`, 'bearer_token_env_var = "INTERLANE_GUEST_TOKEN"'],
    },
    {
      name: 'OpenCode',
      file: 'opencode.json; in version 2 under mcp.servers, without enabled',
      text: json({
        mcp: { interlane: { type: 'remote', url, enabled: true, oauth: false, headers: headers('{env:INTERLANE_GUEST_TOKEN}') } },
      }),
    },
    {
      name: 'Gemini CLI',
      file: '~/.gemini/settings.json',
      text: json({ mcpServers: { interlane: { httpUrl: url, headers: headers('$INTERLANE_GUEST_TOKEN') } } }),
    },
    {
      name: 'Any other',
      file: 'a program that it starts; pass INTERLANE_GUEST_TOKEN on to it',
      text: json({
        mcpServers: { interlane: { command: 'npx', args: ['interlane', 'mcp'], env: { INTERLANE_URL: new URL(url).origin } } },
      }),
    },
  ];
}
