// One tool call: validate → decide → execute → label → record. The only way a tool is run.
import { z } from 'zod';
import { nearest } from '../nearest.ts';
import { levelName, levelRank } from '../levels.ts';
import { untilAborted } from '../abort.ts';
import type { Config } from '../config/schema.ts';
import { destinationOf, evaluate, filterResult, partyOfRow, withheldResult } from '../engine/policy.ts';
import type { PendingCall, Turn, Usage } from '../engine/runner.ts';
import { chargeSession } from '../engine/end.ts';
import { raiseTaint } from '../engine/sessions.ts';
import type { Verdicts } from '../engine/verdicts.ts';
import * as offers from '../store/tables/offers.ts';
import * as runs from '../store/tables/runs.ts';
import * as sessions from '../store/tables/sessions.ts';
import { InterlaneError, reasonOf } from '../errors.ts';
import { clearanceOf, toolFor, usableServers, type Party, type World } from '../rules/decide.ts';
import { join, mayFlow, meet } from '../rules/taint.ts';
import { serverOf, toolLevel } from '../rules/tool-policy.ts';
import type { Destination } from '../protocol/session.ts';
import { guestToolNames } from '../protocol/tool.ts';
import { refusal, unknownOutcome } from '../wording.ts';
import type { Level } from '../protocol/labels.ts';
import type { ReadQuery } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import type { Client, Pace, Pacer } from '../pace.ts';
import type { Tool, ToolContext, ToolOutcome, ToolParts } from './define.ts';
import { cutResult } from './page.ts';

export interface Invoker {
  /** The names of all current tools. */
  names(): string[];
  /** Whether the tool exists, or may exist once its outside server has started. */
  knows(name: string): boolean;
  /** The tools of a session, for its model in a turn, or for an outside caller that acts as it with a token of level `ceiling`. */
  toolsFor(session: SessionRow | number, turn?: ToolsWish): Promise<Tool[]>;
  /** A call of a run's step; the result goes into the transcript. */
  invoke(turn: Turn, call: PendingCall): Promise<'done' | 'waiting'>;
  /** A call by an outside caller that acts as this session; the result is returned, not recorded. */
  callAs(sessionPk: number, call: OutsideCall, pace: Pace): Promise<ToolAnswer>;
}

interface ToolsWish {
  destination?: Destination | undefined;
  signal: AbortSignal;
  ceiling?: Level;
}

interface OutsideCall {
  tool: string;
  args: Record<string, unknown>;
  /** The same for the same call, so that a repeated call acts once. */
  callId: string;
  /** The caller is this session, or an operator who only reads as it: with tools that change nothing and raise nothing. */
  by: 'session' | 'operator';
  /** The level of the caller's token. */
  ceiling: Level;
}

interface ToolAnswer {
  text: string;
  isError: boolean;
  taint: number;
  usage?: Usage | undefined;
}

/** Tools of outside servers, which can appear and disappear. */
export interface OutsideTools {
  known(): Tool[];
  /** Waits briefly for servers whose tools are not known yet: `once` for each, or `again` for one that has failed before. */
  ready(servers: string[], wait: 'once' | 'again', signal?: AbortSignal): Promise<void>;
  /** The current problem of a server, if any. */
  trouble(server: string): string | undefined;
}

export interface InvokerParts extends ToolParts {
  outside?: OutsideTools;
  pacer: Pacer;
  now(): number;
  current(): { world: World; config: Config };
  /** Rules on text are evaluated through it. */
  verdicts: Pick<Verdicts, 'run'>;
}

const mostClients = 1_000;

export function createInvoker(tools: Tool[], parts: InvokerParts): Invoker {
  const builtIn = new Map(tools.map((tool) => [tool.name, tool]));
  const clients = new Map<number, Client>();
  /** The runs of a session are one client of the pacer. Those that called lately are remembered. */
  const clientOf = (sessionPk: number) => {
    const client = clients.get(sessionPk) ?? parts.pacer.client();
    clients.delete(sessionPk);
    clients.set(sessionPk, client);
    if (clients.size > mostClients) clients.delete(clients.keys().next().value!);
    return client;
  };
  const all = () => [...builtIn.values(), ...(parts.outside?.known() ?? [])];
  const find = (name: string) => builtIn.get(name) ?? parts.outside?.known().find((tool) => tool.name === name);
  const toolsOf = (holder: Party) => {
    const { world } = parts.current();
    const guest = holder.key.shape === 'guest';
    // Guest tools do not exist for other sessions, not even as refused ones.
    return all().flatMap(({ name }) => (guest || !guestToolNames.includes(name) ? [toolFor(world, holder, name)] : []));
  };
  const namesFor = (holder: Party) => toolsOf(holder).flatMap(({ tool, allowed }) => (allowed ? [tool] : []));
  /** The steps of every call, from any caller. `start` is committed before the tool acts. */
  const perform = async (
    sessionPk: number,
    asked: Pick<OutsideCall, 'tool' | 'args'> & Partial<Pick<OutsideCall, 'by' | 'ceiling'>>,
    { pace, ...by }: Pick<ToolContext, 'origin' | 'key' | 'turn'> & { pace: Pace },
    start: (tool: Tool) => Promise<void>,
  ): Promise<ToolAnswer | 'waiting'> => {
    const { session, destination } = await parts.store.read(callerOf, { sessionPk });
    const { by: reader, ceiling = 'RESTRICTED' } = asked;
    const caller = upTo(ceiling, partyOfRow(parts.current().world, session, by.turn ? by.turn.destination : destination));
    const refuse = (code: string, error: string) => ({
      text: JSON.stringify({ status: 'error', code, error }),
      isError: true,
      taint: session.taint,
    });
    if (!mayFlow(levelName(session.level), ceiling)) return refuse('SESSION_NOT_FOUND', refusal.sessionGone);
    // 1. validate
    const server = serverOf(parts.current().world.tools, asked.tool);
    if (server !== undefined && parts.outside && usableServers(parts.current().world, caller).includes(server)) {
      await parts.outside.ready([server], 'again', pace.signal);
      const trouble = parts.outside.trouble(server);
      if (!find(asked.tool) && trouble !== undefined) return refuse('UNAVAILABLE', refusal.serverDown(server, trouble));
    }
    const tool = find(asked.tool);
    if (!tool) return refuse('INVALID_REQUEST', unknownTool(asked.tool, namesFor(caller)));
    if (reader === 'operator' && (tool.effect !== 'pure' || tool.costs))
      return refuse('MISSING_SCOPE', refusal.needsSessionToken(tool.name));
    const read = tool.params.safeParse(asked.args);
    if (!read.success) return refuse('INVALID_REQUEST', describe(tool, read.error));
    // 2. decide
    const args = JSON.stringify(read.data);
    const decision = await parts.verdicts.run(() =>
      evaluate({ action: 'tool', caller, tool: tool.name, text: args }, parts.current().world),
    );
    if (decision.effect === 'BLOCK') return refuse(decision.code ?? 'POLICY_BLOCKED', refusal.policy(tool.name, decision.why));
    // Redacted arguments could mean something else, so a REDACT rule refuses them instead.
    if (decision.effect === 'REDACT') return refuse('POLICY_BLOCKED', refusal.redactedArguments(tool.name));
    // 3. execute
    await start(tool);
    const { world, config } = parts.current();
    const { maxPingPongTurns } = config.session.agentToAgent;
    const shownTools = (other: SessionRow) => toolsOf(other.pk === session.pk ? caller : partyOfRow(world, other));
    // What a session has read already does not raise it. An operator reads up to its token's level, and raises nothing.
    const highest = reader === 'operator' ? ceiling : join(clearanceOf(world, caller), caller.facts.taint);
    const { maxMiB, maxFiles } = config.tools.files;
    const context: ToolContext = {
      ...parts,
      highest,
      room: { bytes: maxMiB * 1024 * 1024, files: maxFiles },
      world,
      maxPingPongTurns,
      now: parts.now(),
      ...by,
      ...pace,
      session,
      caller,
      toolsOf: shownTools,
    };
    let outcome: ToolOutcome;
    try {
      outcome = await untilAborted(pace.signal, tool.run(context, read.data));
    } catch (thrown) {
      if (pace.signal.aborted || (thrown instanceof InterlaneError && thrown.code === 'LEASE_LOST')) throw thrown;
      const code = thrown instanceof InterlaneError ? thrown.code : 'TOOL_FAILED';
      outcome = { value: { status: 'error', code, error: reasonOf(thrown) }, isError: true, taint: session.taint };
    }
    if ('pending' in outcome) return 'waiting';
    // 4. label the result, and apply the operator's rules to it
    const level = join(toolLevel(world.tools, tool.name), levelName(outcome.taint ?? 0));
    const taint = levelRank(level);
    const text = typeof outcome.value === 'string' ? outcome.value : JSON.stringify(outcome.value);
    const result = await parts.verdicts.run(() => filterResult(parts.current().world, caller, tool.name, text));
    const { usage, isError = false } = outcome;
    if (!mayFlow(level, highest)) return { ...refuse('ABOVE_CLEARANCE', refusal.aboveClearance(tool.name, level, highest)), usage };
    if (result.text === undefined) return { ...refuse(...withheldResult(tool.name, result.decision)), usage };
    return { text: cutResult(result.text), isError, taint, usage };
  };

  return {
    names: () => all().map((tool) => tool.name),
    knows: (name) => builtIn.has(name) || serverOf(parts.current().world.tools, name) !== undefined,
    async toolsFor(of, turn) {
      const from =
        typeof of === 'number' ? await parts.store.read(callerOf, { sessionPk: of }) : { session: of, destination: turn?.destination };
      const { world } = parts.current();
      const holder = upTo(turn?.ceiling, partyOfRow(world, from.session, from.destination));
      await parts.outside?.ready(usableServers(world, holder), 'once', turn?.signal);
      const given = new Set(namesFor(holder));
      return all().filter((tool) => given.has(tool.name));
    },
    async invoke(turn, call) {
      if (call.state === 'waiting') return 'waiting';
      const origin = { ...turn.lease, step: call.step, idx: call.idx };
      const answer =
        call.state === 'started' && call.effect === 'once'
          ? await outcomeUnknown(parts, turn.sessionPk)
          : await perform(
              turn.sessionPk,
              call,
              { origin, key: call.key, turn, pace: clientOf(turn.sessionPk).pace(turn.signal) },
              async (tool) => {
                if (call.state === 'planned' && tool.effect !== 'pure') await turn.startCall(call);
              },
            );
      if (answer === 'waiting') return 'waiting';
      // 5. record. Outside of any try: a failure here must not become the result of the call.
      await turn.finishCall(call, answer);
      return 'done';
    },
    async callAs(sessionPk, call, pace) {
      const answer = await perform(sessionPk, call, { origin: { sessionPk, callId: call.callId }, key: call.callId, pace }, async () => {});
      if (answer === 'waiting') throw new InterlaneError('INTERNAL', `tool ${call.tool} cannot wait for a caller from outside`);
      const { session } = await parts.store.read(callerOf, { sessionPk });
      if (answer.usage) await parts.store.write(chargeSession, { sessionKey: session.key, sessionPk, usage: answer.usage });
      // I8. Before the caller reads the result.
      if (call.by === 'session' && answer.taint > session.taint)
        await parts.store.write(raiseTaint(parts.current), { sessionKey: session.key, sessionPk, taint: answer.taint, now: parts.now() });
      return answer;
    },
  };
}

/** A session as its token acts: up to the token's level, which may be below the clearance of the session. */
function upTo(ceiling: Level = 'RESTRICTED', { facts, ...party }: Party): Party {
  return { ...party, facts: { ...facts, clearance: meet(facts.clearance ?? ceiling, ceiling) } };
}

/** A tool that may have acted when the gateway died is not called again; the result says so. */
async function outcomeUnknown(parts: InvokerParts, sessionPk: number): Promise<ToolAnswer> {
  const { session } = await parts.store.read(callerOf, { sessionPk });
  return { text: JSON.stringify({ status: 'error', code: 'OUTCOME_UNKNOWN', error: unknownOutcome }), isError: true, taint: session.taint };
}

/** The session that a call acts for. A guest that has taken a turn calls for that turn. */
const callerOf: ReadQuery<{ sessionPk: number }, { session: SessionRow; destination: Destination | undefined }> = {
  name: 'caller',
  *body(t, { sessionPk }) {
    const session = yield* sessions.get(t, sessionPk);
    const offer = yield* offers.openIn(t, session.key);
    return { session, destination: offer?.state === 'taken' ? destinationOf(yield* runs.get(t, offer.run_pk)) : undefined };
  },
};

function unknownTool(name: string, names: string[]): string {
  const [near] = nearest(name, names);
  return refusal.unknownTool(name, near, names);
}

/** A message may name everything that was written. */
const mostOfIssue = 500;

function describe(tool: Tool, error: z.ZodError): string {
  const lines = error.issues
    .slice(0, 5)
    .map((issue) => `${z.core.toDotPath(issue.path) || 'arguments'}: ${issue.message.slice(0, mostOfIssue)}`);
  return refusal.arguments(tool.name, lines);
}
