// Inbound origin → agent and session key: bindings in seven tiers, read from an index, so that the cost does not grow with their number.
import type { Finding } from '../finding.ts';
import { nearest } from '../nearest.ts';
import type { RuleTrace } from '../protocol/decision.ts';
import { accountId, agentId, platformId } from '../protocol/ids.ts';
import { chatType } from '../protocol/labels.ts';
import type { Origin } from '../protocol/message.ts';
import type { Binding, RuleSettings } from '../protocol/settings.ts';
import { isKnownAgent, keyContext, type AgentTable } from './agents.ts';
import {
  compileIdentityLinks,
  directKey,
  formatSessionKey,
  groupKey,
  mainKey,
  parentKey,
  threadKey,
  type IdentityLinks,
  type SessionKey,
} from './session-key.ts';

const tiers = ['peer', 'parentPeer', 'guild', 'team', 'account', 'channel', 'default'] as const;
type Tier = (typeof tiers)[number];

/** The conditions of a binding besides its channel, already normalized. */
interface Demand {
  account: string | undefined;
  peer: string | undefined;
  guild: string | undefined;
  team: string | undefined;
}

interface Bound {
  position: number;
  agent: string;
  /** The agent that the binding names, if it does not exist and the default agent is used instead. */
  missing: string | undefined;
}

export interface Routes {
  agents: AgentTable;
  links: IdentityLinks;
  scope: RuleSettings['session']['scope'];
  dmScope: RuleSettings['session']['dmScope'];
  /** channel → the combinations of fields in its bindings, and the first binding for each set of values. */
  channels: Map<string, { shapes: Set<string>; first: Map<string, Bound> }>;
  bindings: Binding[];
  findings: Finding[];
}

export interface Route {
  agentId: string;
  key: SessionKey;
  sessionKey: string;
  mainSessionKey: string;
  /** The session a thread was opened in, when this is a thread. */
  parentSessionKey?: string;
  channel: string;
  accountId: string;
  matchedBy: Tier;
  /** Position in `bindings`; absent if the default agent was used. */
  binding?: number;
  rules: RuleTrace[];
}

export function compileRoutes(settings: Pick<RuleSettings, 'session' | 'bindings'>, agents: AgentTable): Routes {
  const channels: Routes['channels'] = new Map();
  const findings: Finding[] = [];
  settings.bindings.forEach((binding, position) => {
    const channel = platformId(binding.match.channel);
    const entry = channels.get(channel) ?? { shapes: new Set<string>(), first: new Map<string, Bound>() };
    channels.set(channel, entry);
    const demand = demandOf(binding);
    const wanted = agentId(binding.agentId);
    const known = isKnownAgent(agents, wanted);
    if (!known)
      findings.push({
        path: ['bindings', position, 'agentId'],
        says: 'is not in agents.list, so its messages go to the default agent',
        meant: nearest(wanted, agents.byId.keys())[0],
      });
    entry.shapes.add(shapeOf(demand));
    const place = valuesOf(demand);
    const earlier = entry.first.get(place);
    if (earlier)
      findings.push({
        path: ['bindings', position],
        says: `never matches: bindings[${earlier.position}] has the same conditions and comes first`,
      });
    // Inside a tier the config order wins, so only the first binding with the same conditions can ever match.
    if (!entry.first.has(place))
      entry.first.set(
        place,
        known ? { position, agent: wanted, missing: undefined } : { position, agent: agents.defaultId, missing: wanted },
      );
  });
  const { scope, dmScope, identityLinks } = settings.session;
  return { agents, links: compileIdentityLinks(identityLinks), scope, dmScope, channels, bindings: settings.bindings, findings };
}

export function route(routes: Routes, origin: Origin): Route {
  const from = readOrigin(origin);
  const { found, rules } = findBinding(routes, from);
  const named = origin.accountId?.trim() ?? '';
  if (named !== '' && named.toLowerCase() !== from.account)
    rules.unshift({
      rule: 'account',
      effect: 'NOTE',
      why: `accountId ${JSON.stringify(named.slice(0, 100))} is used as "${from.account}"`,
    });
  const shared = routes.scope === 'global' && from.kind === 'direct';
  const agent = shared || !found ? routes.agents.defaultId : found.agent;
  if (shared) rules.push({ rule: 'session.scope', effect: 'ALLOW', why: `all direct chats share one session, owned by "${agent}"` });
  const key = sessionOf(routes, from, agent);
  const parent = parentKey(key);
  const answer: Route = {
    agentId: agent,
    key,
    sessionKey: formatSessionKey(key),
    mainSessionKey: formatSessionKey(mainKey(keyContext(routes.agents, agent))),
    channel: from.channel,
    accountId: from.account,
    matchedBy: shared || !found ? 'default' : found.tier,
    rules,
  };
  if (parent) answer.parentSessionKey = formatSessionKey(parent);
  if (found && !shared) answer.binding = found.position;
  rules.push(keyNote(routes, from, key));
  return answer;
}

interface ReadOrigin {
  channel: string;
  account: string;
  kind: 'direct' | 'group' | 'channel';
  /** Both are missing if the message names no chat. */
  peerId: string | undefined;
  peer: string | undefined;
  parentPeer: string | undefined;
  guild: string | undefined;
  team: string | undefined;
  topicId: string | undefined;
  threadId: string | undefined;
}

function readOrigin(origin: Origin): ReadOrigin {
  return {
    channel: platformId(origin.channel),
    account: accountId(origin.accountId ?? ''),
    kind: origin.peer ? chatType(origin.peer.kind) : 'direct',
    peerId: origin.peer?.id,
    peer: origin.peer && peerText(origin.peer),
    parentPeer: origin.parentPeer && peerText(origin.parentPeer),
    guild: origin.guildId === undefined ? undefined : platformId(origin.guildId),
    team: origin.teamId === undefined ? undefined : platformId(origin.teamId),
    topicId: origin.topicId,
    threadId: origin.threadId,
  };
}

/** At most 24 look-ups, and only for combinations of fields that some binding of this channel uses. */
function findBinding(routes: Routes, from: ReadOrigin): { found?: Bound & { tier: Tier }; rules: RuleTrace[] } {
  const rules: RuleTrace[] = [];
  const entry = routes.channels.get(from.channel);
  if (!entry) {
    rules.push({ rule: 'bindings', effect: 'NOTE', why: `no binding names channel "${from.channel}"` });
  } else {
    for (const tier of tiers.slice(0, -1)) {
      const seek = demandsOf(tier, from);
      let best: Bound | undefined;
      for (const demand of seek) {
        if (!entry.shapes.has(shapeOf(demand))) continue;
        const hit = entry.first.get(valuesOf(demand));
        if (hit && (!best || hit.position < best.position)) best = hit;
      }
      if (best) {
        rules.push({ rule: `binding.${tier}`, effect: 'ALLOW', why: `bindings[${best.position}] matches: ${describeTier(tier, from)}` });
        if (best.missing !== undefined)
          rules.push({
            rule: 'agent.missing',
            effect: 'NOTE',
            why: `agents.list has no "${best.missing}", so the default agent "${best.agent}" answers`,
          });
        return { found: { ...best, tier }, rules };
      }
      rules.push({
        rule: `binding.${tier}`,
        effect: 'NOTE',
        why: seek.length === 0 ? `the message has no ${tier}` : `no binding for ${describeTier(tier, from)}`,
      });
    }
  }
  rules.push({
    rule: 'agent.default',
    effect: 'ALLOW',
    why: `no binding matched, so the default agent "${routes.agents.defaultId}" answers`,
  });
  return { rules };
}

/** Every condition that this message satisfies in a tier. */
function demandsOf(tier: Tier, from: ReadOrigin): Demand[] {
  const account = [from.account, undefined];
  const guild = from.guild === undefined ? [undefined] : [from.guild, undefined];
  const team = from.team === undefined ? [undefined] : [from.team, undefined];
  const demands: Demand[] = [];
  const add = (
    accounts: (string | undefined)[],
    peers: (string | undefined)[],
    guilds: (string | undefined)[],
    teams: (string | undefined)[],
  ) => {
    for (const a of accounts)
      for (const p of peers) for (const g of guilds) for (const t of teams) demands.push({ account: a, peer: p, guild: g, team: t });
  };
  if (tier === 'peer' && from.peer !== undefined) add(account, [from.peer], guild, team);
  if (tier === 'parentPeer' && from.parentPeer !== undefined) add(account, [from.parentPeer], guild, team);
  if (tier === 'guild' && from.guild !== undefined) add(account, [undefined], [from.guild], team);
  if (tier === 'team' && from.team !== undefined) add(account, [undefined], [undefined], [from.team]);
  if (tier === 'account') add([from.account], [undefined], [undefined], [undefined]);
  if (tier === 'channel') add([undefined], [undefined], [undefined], [undefined]);
  return demands;
}

function demandOf({ match }: Binding): Demand {
  return {
    account: match.accountId?.trim() === '*' ? undefined : accountId(match.accountId ?? ''),
    peer: match.peer && peerText(match.peer),
    guild: match.guildId === undefined ? undefined : platformId(match.guildId),
    team: match.teamId === undefined ? undefined : platformId(match.teamId),
  };
}

const shapeOf = (demand: Demand) =>
  `${demand.account === undefined ? '' : 'a'}${demand.peer === undefined ? '' : 'p'}${demand.guild === undefined ? '' : 'g'}${demand.team === undefined ? '' : 't'}`;
const valuesOf = (demand: Demand) => JSON.stringify([demand.account, demand.peer, demand.guild, demand.team]);
const peerText = (peer: NonNullable<Origin['peer']>) => `${chatType(peer.kind)}:${platformId(peer.id)}`;

function describeTier(tier: Tier, from: ReadOrigin): string {
  const account = `channel "${from.channel}", account "${from.account}"`;
  switch (tier) {
    case 'peer':
      return `${account}, peer "${from.peer}"`;
    case 'parentPeer':
      return `${account}, parent peer "${from.parentPeer}"`;
    case 'guild':
      return `${account}, guild "${from.guild}"`;
    case 'team':
      return `${account}, team "${from.team}"`;
    case 'account':
      return account;
    default:
      return `channel "${from.channel}", any account`;
  }
}

/** The session key always comes from the message's own peer, even if its parent's binding chose the agent. */
function sessionOf(routes: Routes, from: ReadOrigin, agent: string): SessionKey {
  const context = keyContext(routes.agents, agent);
  let key =
    from.peerId === undefined
      ? mainKey(context)
      : from.kind === 'direct'
        ? directKey(
            {
              scope: routes.scope === 'global' ? 'main' : routes.dmScope,
              channel: from.channel,
              account: from.account,
              peer: from.peerId,
              links: routes.links,
            },
            context,
          )
        : groupKey({ kind: from.kind, channel: from.channel, id: from.peerId }, agent);
  if (routes.scope === 'global' && from.kind === 'direct') return key;
  if (from.topicId !== undefined) key = threadKey(key, 'topic', from.topicId);
  if (from.threadId !== undefined) key = threadKey(key, 'thread', from.threadId);
  return key;
}

function keyNote(routes: Routes, from: ReadOrigin, key: SessionKey): RuleTrace {
  if (from.peerId === undefined) return { rule: 'session.key', effect: 'ALLOW', why: 'the message names no chat' };
  if (from.kind !== 'direct') return { rule: 'session.key', effect: 'ALLOW', why: `every ${from.kind} has a session of its own` };
  if (routes.scope === 'global') return { rule: 'session.key', effect: 'ALLOW', why: 'session.scope is "global"' };
  const linked = routes.dmScope !== 'main' && routes.links.people.get(from.channel)?.has(platformId(from.peerId));
  const who = linked && key.shape === 'direct' ? `; session.identityLinks names this sender "${key.peer}"` : '';
  return { rule: 'session.key', effect: 'ALLOW', why: `session.dmScope is "${routes.dmScope}"${who}` };
}

/**
 * For explain: bindings of this channel that nearly match (one field differs, or only the kind of the same peer), and
 * bindings that match but lose to the chosen one.
 */
export function nearMisses(routes: Routes, origin: Origin, taken: number | undefined, limit = 10): RuleTrace[] {
  const from = readOrigin(origin);
  const misses: RuleTrace[] = [];
  for (const [position, binding] of routes.bindings.entries()) {
    if (misses.length === limit) break;
    if (position === taken || platformId(binding.match.channel) !== from.channel) continue;
    const demand = demandOf(binding);
    const differs: string[] = [];
    let near = true;
    if (demand.account !== undefined && demand.account !== from.account) {
      const unnamed = binding.match.accountId === undefined ? ', which a binding without accountId means' : '';
      differs.push(`account is "${from.account}", not "${demand.account}"${unnamed}`);
    }
    if (demand.peer !== undefined && demand.peer !== from.peer && demand.peer !== from.parentPeer) {
      near = from.peerId !== undefined && platformId(binding.match.peer!.id) === platformId(from.peerId);
      differs.push(`peer is ${quoted(from.peer)}, not "${demand.peer}"`);
    }
    if (demand.guild !== undefined && demand.guild !== from.guild) differs.push(`guild is ${quoted(from.guild)}, not "${demand.guild}"`);
    if (demand.team !== undefined && demand.team !== from.team) differs.push(`team is ${quoted(from.team)}, not "${demand.team}"`);
    if (differs.length === 0)
      misses.push({ rule: `bindings[${position}]`, effect: 'NOTE', why: 'matches too, but what was taken is more exact or comes first' });
    else if (differs.length === 1 && near)
      misses.push({ rule: `bindings[${position}]`, effect: 'NOTE', why: `does not match: ${differs[0]!}` });
  }
  return misses;
}

const quoted = (text: string | undefined) => (text === undefined ? 'missing' : `"${text}"`);
