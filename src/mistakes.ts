// A config that fits the schema → what in it names something that does not exist, has no effect, or is probably not meant.
import type { Places } from './config/places.ts';
import { placeOf } from './config/reference.ts';
import type { Config } from './config/schema.ts';
import type { Finding } from './finding.ts';
import { nearest } from './nearest.ts';
import { agentId, platformId } from './protocol/ids.ts';
import type { HookName } from './protocol/labels.ts';
import type { ToolList } from './protocol/settings.ts';
import { guestToolNames, toolNames } from './protocol/tool.ts';
import type { World } from './rules/decide.ts';
import { matchesGlob } from './rules/glob.ts';

/** What a config may name beside its own parts. */
export interface Known {
  /** Tools beside the built-in ones. */
  tools: readonly string[];
  /** Channels that the gateway was given. */
  channels: readonly string[];
  /** Whether a program can be started. */
  canRun(command: string, env: Record<string, string>): boolean;
}

/** The channel of operators' messages. */
const ownChannels = ['webchat'];
/** Chat platforms by their usual names, to recognize a misspelt one. */
const platforms =
  'telegram discord whatsapp slack signal imessage matrix msteams mattermost googlechat line irc nostr zalo feishu twitch loopback'.split(
    ' ',
  );

export function mistakesIn(config: Config, world: World, known: Known, places: Places | undefined): Finding[] {
  const ids = [...world.agents.byId.keys()];
  // A config without any channel is of a gateway that gets its channels elsewhere, or later. Then only misspelt names are found.
  const given = [...Object.keys(config.channels), ...known.channels];
  const channels = given.length === 0 ? undefined : [...given, ...ownChannels].map(platformId);
  const tools = [...toolNames, ...guestToolNames, ...known.tools];
  return [
    ...withoutEffect(places),
    ...inAgents(config, ids),
    ...inTools(config, tools),
    ...inChannels(config, channels),
    ...inServers(config, ids, known),
    ...inRules(config, { ids, channels, tools }),
    ...inLinks(config),
  ];
}

function withoutEffect(places: Places | undefined): Finding[] {
  const findings: Finding[] = [];
  const visit = (value: unknown, path: PropertyKey[]) => {
    if (path.length > 0 && placeOf(path)?.notYet) findings.push({ path, says: 'has no effect yet in this version', inName: true });
    else if (Array.isArray(value)) value.forEach((item, index) => visit(item, [...path, index]));
    else if (typeof value === 'object' && value !== null) for (const [name, item] of Object.entries(value)) visit(item, [...path, name]);
  };
  visit(places?.value, []);
  return findings;
}

function inAgents({ agents, tools }: Config, ids: string[]): Finding[] {
  const { list, defaults } = agents;
  const marked = list.flatMap((entry, index) => (entry.default ? [index] : []));
  const { enabled, allow } = tools.agentToAgent;
  return [
    ...list.flatMap(({ id, subagents }, index) => [
      ...(agentId(id) === id
        ? []
        : [{ path: ['agents', 'list', index, 'id'], says: 'is changed to an id of a-z, 0-9, "_" and "-"', meant: agentId(id) }]),
      ...unknownAgents(ids, subagents.allowAgents, ['agents', 'list', index, 'subagents', 'allowAgents']),
    ]),
    ...unknownAgents(ids, defaults.subagents.allowAgents, ['agents', 'defaults', 'subagents', 'allowAgents']),
    ...marked.slice(1).map((index) => ({
      path: ['agents', 'list', index, 'default'],
      says: `has no effect: agents.list[${marked[0]!}] has default: true too, and comes first`,
    })),
    ...allow.flatMap((pattern, index) => noAgent(ids, pattern, ['tools', 'agentToAgent', 'allow', index])),
    ...(allow.length > 0 && !enabled
      ? [
          {
            path: ['tools', 'agentToAgent', 'allow'],
            says: 'has no effect without tools.agentToAgent.enabled: true',
            inName: true as const,
          },
        ]
      : []),
  ];
}

function inTools({ agents, tools, classification, mcp }: Config, names: string[]): Finding[] {
  const servers = Object.keys(mcp.servers);
  const noTool = (pattern: string) => missingTool(pattern, names, servers);
  const inList = (list: ToolList, path: PropertyKey[]) =>
    (['allow', 'deny'] as const).flatMap((field) =>
      (list[field] ?? []).flatMap((pattern, index) => at([...path, field, index], noTool(pattern))),
    );
  return [
    ...agents.list.flatMap((entry, index) => inList(entry.tools, ['agents', 'list', index, 'tools'])),
    ...inList(tools.subagents.tools, ['tools', 'subagents', 'tools']),
    ...Object.entries(tools.channels).flatMap(([channel, list]) => inList(list, ['tools', 'channels', channel])),
    ...Object.keys(classification.tools).flatMap((name) => atName(['classification', 'tools', name], noTool(name))),
  ];
}

function inChannels({ bindings, tools, classification, session }: Config, channels: string[] | undefined): Finding[] {
  const noChannel = (name: string) => missingChannel(name, channels);
  return [
    ...bindings.flatMap(({ match }, index) => at(['bindings', index, 'match', 'channel'], noChannel(match.channel))),
    ...Object.keys(tools.channels).flatMap((name) => atName(['tools', 'channels', name], noChannel(name))),
    ...Object.keys(classification.channels).flatMap((name) => atName(['classification', 'channels', name], noChannel(name))),
    ...session.sendPolicy.rules.flatMap(({ match }, index) =>
      (['channel', 'surface'] as const).flatMap((field) =>
        at(['session', 'sendPolicy', 'rules', index, 'match', field], match[field] === undefined ? undefined : noChannel(match[field])),
      ),
    ),
  ];
}

function inServers({ mcp }: Config, ids: string[], { canRun }: Known): Finding[] {
  return Object.entries(mcp.servers).flatMap(([name, { command, env, agents }]) => [
    ...unknownAgents(ids, agents, ['mcp', 'servers', name, 'agents']),
    ...(command === undefined || canRun(command, env)
      ? []
      : [
          {
            path: ['mcp', 'servers', name, 'command'],
            says: `is not a program that can be started; ${/[\\/]/.test(command) ? 'check the path' : 'install it, or write its full path'}`,
          },
        ]),
  ]);
}

/** The hooks that this version evaluates. */
const askedHooks = new Set<HookName>([
  'PRE_CONTEXT_INJECTION',
  'PRE_TOOL_CALL',
  'POST_TOOL_RESPONSE',
  'PRE_OUTPUT',
  'AGENT_INVOCATION',
  'MCP_TOOL_CALL',
]);

function inRules(
  { policy, mcp }: Config,
  { ids, channels, tools }: { ids: string[]; channels: string[] | undefined; tools: string[] },
): Finding[] {
  const servers = Object.keys(mcp.servers);
  return policy.rules.flatMap(({ hook, match }, index): Finding[] => {
    const path = ['policy', 'rules', index];
    if (!askedHooks.has(hook))
      return [{ path: [...path, 'hook'], says: 'is not evaluated yet in this version, so the rule has no effect' }];
    const { tool, agentId: agent, channel } = match;
    return [
      ...(tool !== undefined && !/TOOL/.test(hook)
        ? [{ path: [...path, 'match', 'tool'], says: `never matches at ${hook}; tools are known at PRE_TOOL_CALL and POST_TOOL_RESPONSE` }]
        : at([...path, 'match', 'tool'], tool === undefined ? undefined : missingTool(tool, tools, servers))),
      ...(agent === undefined ? [] : noAgent(ids, agent, [...path, 'match', 'agentId'])),
      ...(channel === undefined || channel.includes('*') ? [] : at([...path, 'match', 'channel'], missingChannel(channel, channels))),
    ];
  });
}

function inLinks({ session }: Config): Finding[] {
  const linked = new Map<string, string>();
  return Object.entries(session.identityLinks).flatMap(([person, entries]) =>
    entries.flatMap((entry, index): Finding[] => {
      const colon = entry.indexOf(':');
      const key = JSON.stringify([platformId(entry.slice(0, colon)), platformId(entry.slice(colon + 1))]);
      const earlier = linked.get(key) ?? person;
      linked.set(key, earlier);
      if (earlier === person) return [];
      return [{ path: ['session', 'identityLinks', person, index], says: `is listed for "${earlier}" too, who comes first and keeps it` }];
    }),
  );
}

type Said = Pick<Finding, 'says' | 'meant'> | undefined;

const at = (path: PropertyKey[], said: Said): Finding[] => (said ? [{ path, ...said }] : []);
const atName = (path: PropertyKey[], said: Said): Finding[] => (said ? [{ path, ...said, inName: true }] : []);

function missingTool(pattern: string, names: string[], servers: string[]): Said {
  if (names.some((name) => matchesGlob(pattern, name))) return undefined;
  // The tools of an outside server are not known before it runs.
  const prefix = pattern.trim().toLowerCase().split('*')[0]!;
  const cut = prefix.indexOf('__');
  const server = cut < 0 ? undefined : prefix.slice(0, cut);
  if (
    servers.some((name) =>
      server === undefined ? pattern.includes('*') && `${name.toLowerCase()}__`.startsWith(prefix) : name.toLowerCase() === server,
    )
  )
    return undefined;
  if (server !== undefined)
    return { says: `names the server "${server}", which mcp.servers does not have`, meant: swapped(server, servers, prefix) };
  return { says: 'matches no tool', meant: nearest(pattern, names)[0] };
}

const swapped = (server: string, servers: string[], prefix: string) => {
  const [near] = nearest(server, servers);
  return near === undefined ? undefined : near + prefix.slice(server.length);
};

function missingChannel(name: string, channels: string[] | undefined): Said {
  const known = channels ?? [...platforms, ...ownChannels];
  if (known.includes(platformId(name))) return undefined;
  const [meant] = nearest(name, known);
  if (channels) return { says: 'is not a channel of this config', meant };
  // A short name is near to many.
  return meant === undefined || name.length < 5 ? undefined : { says: 'is not a channel that is known', meant };
}

function unknownAgents(ids: string[], allowed: string[] | undefined, path: PropertyKey[]): Finding[] {
  return (allowed ?? []).flatMap((id, index) => (id.trim() === '*' ? [] : noAgent(ids, agentId(id), [...path, index])));
}

function noAgent(ids: string[], pattern: string, path: PropertyKey[]): Finding[] {
  if (ids.some((id) => matchesGlob(pattern, id))) return [];
  const says = pattern.includes('*') ? 'matches no agent' : 'is not in agents.list';
  return [{ path, says, meant: nearest(pattern, ids)[0] }];
}
