// Outside MCP servers as tools, `server__tool`: started at first use, restarted after a pause when they die, and never waited for too long.
import type { CallToolResult, Tool as Listed } from '@modelcontextprotocol/client';
import { z } from 'zod';
import { sleep, type Clock } from '../clock.ts';
import { untilAborted } from '../abort.ts';
import { InterlaneError, reasonOf } from '../errors.ts';
import { outsideTool } from '../rules/tool-policy.ts';
import type { Tool, ToolOutcome } from '../tools/define.ts';
import type { OutsideTools } from '../tools/invoke.ts';
import { largestAnswer } from '../tools/page.ts';
import { plainLine } from '../wording.ts';
import { connect, NotSent, Refused, type Connection, type OutsideSettings } from './outside-connection.ts';
import type { Warn } from '../warn.ts';

interface OutsideParts {
  clock: Clock;
  warn: Warn;
}

/** A package runner may have to fetch the server first. */
const startMs = 30_000;
/** How long a turn waits for tools that are not known yet; it then continues without them. */
const firstLookMs = 5_000;
/** A server that has not answered a call must answer a ping this soon, or it counts as dead. */
const pingMs = 5_000;
const freshMs = 10 * 60_000;
const refreshPauseMs = 1_000;
const firstPauseMs = 1_000;
const longestPauseMs = 60_000;

const mostTools = 128;
const longestDescription = 400;
const longestHint = 200;
const largestSchema = 8_000;

export class OutsideServers implements OutsideTools {
  private readonly servers: Map<string, OutsideServer>;

  constructor(settings: Record<string, OutsideSettings>, parts: OutsideParts) {
    this.servers = new Map(Object.entries(settings).map(([name, one]) => [name, new OutsideServer(name, one, parts)]));
  }

  known(): Tool[] {
    return [...this.servers.values()].flatMap((server) => server.tools);
  }

  async ready(names: string[], wait: 'once' | 'again', signal?: AbortSignal): Promise<void> {
    await Promise.all(names.map(async (name) => this.servers.get(name)?.ready(wait, signal)));
  }

  /** The current problem of a server, if any. */
  trouble(name: string): string | undefined {
    const server = this.servers.get(name);
    return server?.trouble ?? (server?.listed === false ? 'has not started yet' : undefined);
  }

  warnings(): string[] {
    return [...this.servers].flatMap(([name, { trouble }]) => (trouble === undefined ? [] : [`mcp.servers.${name} ${trouble}`]));
  }

  async close(): Promise<void> {
    await Promise.all([...this.servers.values()].map((server) => server.close()));
  }
}

class OutsideServer {
  tools: Tool[] = [];
  trouble: string | undefined;
  private readonly name: string;
  private readonly settings: OutsideSettings;
  private readonly parts: OutsideParts;
  private opening: Promise<Connection> | undefined;
  /** The start that a turn has already waited for. */
  private looked: Promise<Connection> | undefined;
  private current: Connection | undefined;
  private era: Connection['era'] | undefined;
  private listedAt: number | undefined;
  /** The connection that is asked for its tools again. A later connection does not wait for an earlier one. */
  private refreshing: Connection | undefined;
  /** It has said that its tools changed since the last refresh began. */
  private stale = false;
  private nextRefresh = 0;
  /** Deaths and failed starts since it last answered a call. */
  private failures = 0;
  private notBefore = 0;
  private readonly closed = new AbortController();
  /** Connections that are opening or closing; none outlives the gateway. */
  private readonly underWay = new Set<Promise<unknown>>();

  constructor(name: string, settings: OutsideSettings, parts: OutsideParts) {
    this.name = name;
    this.settings = settings;
    this.parts = parts;
  }

  get listed(): boolean {
    return this.listedAt !== undefined;
  }

  /** Resolves when its tools are known, or after the wait. Never throws: a call of one of its tools reports the problem. */
  async ready(wait: 'once' | 'again', signal = this.closed.signal): Promise<void> {
    if (this.listedAt !== undefined) {
      if (this.current && this.parts.clock.elapsed() - this.listedAt > freshMs) void this.refresh(this.current);
      return;
    }
    const connected = this.connected();
    // A turn that continued without the server does not wait again at its next step; no turn waits for a server that has failed before.
    if (wait === 'once' && (this.looked === connected || this.failures > 0)) {
      connected.catch(() => {});
      return;
    }
    await this.within(firstLookMs, signal, () => connected).catch(() => {});
    this.looked = this.opening;
  }

  async close(): Promise<void> {
    this.closed.abort(new Error('the gateway is stopping'));
    if (this.current) this.end(this.current);
    await Promise.all(this.underWay);
  }

  private track(work: Promise<unknown>): void {
    const settled = work.catch(() => {}).finally(() => this.underWay.delete(settled));
    this.underWay.add(settled);
  }

  private end(connection: Connection): void {
    this.track(connection.close());
  }

  /** The open connection, the one that is opening, or a new one unless it is too early to retry. */
  private connected(): Promise<Connection> {
    if (this.opening) return this.opening;
    const wait = this.notBefore - this.parts.clock.elapsed();
    if (wait > 0)
      return Promise.reject(this.unavailable(`${this.trouble ?? 'is not reachable'}; retrying in ${Math.ceil(wait / 1_000)} s`));
    const opening = this.open().catch((thrown: unknown) => {
      const lastOutput = thrown instanceof Error && typeof thrown.cause === 'string' ? thrown.cause : '';
      const why = `cannot be reached: ${plainLine(reasonOf(thrown))}`;
      if (this.opening === opening) this.failed(why, lastOutput);
      throw this.unavailable(why);
    });
    this.opening = opening;
    return opening;
  }

  private async open(): Promise<Connection> {
    this.closed.signal.throwIfAborted();
    let made: Connection | undefined;
    const connection = await this.within(startMs, this.closed.signal, async (signal) => {
      const onToolsChanged = () => void (made && this.refresh(made));
      const onClose = (fault: string | undefined, lastOutput: string) => this.lost(made, fault ?? 'ended', lastOutput);
      const connecting = connect(this.settings, { signal, era: this.era, onClose, onToolsChanged, clock: this.parts.clock });
      this.track(connecting);
      made = await connecting;
      try {
        this.take(await untilAborted(signal, made.list(signal)));
      } catch (thrown) {
        this.end(made);
        throw thrown;
      }
      return made;
    });
    this.era = connection.era;
    this.current = connection;
    this.trouble = undefined;
    return connection;
  }

  private lost(connection: Connection | undefined, why: string, lastOutput = ''): void {
    if (connection && connection === this.current) this.failed(why, lastOutput);
  }

  /** Standard error of a child is for the operator only: it may contain anything. */
  private failed(why: string, lastOutput: string): void {
    this.opening = undefined;
    this.current = undefined;
    if (this.closed.signal.aborted) return;
    // The first retry is immediate: a server that worked may just have been restarted.
    const pause = this.failures === 0 ? 0 : Math.min(firstPauseMs * 2 ** (this.failures - 1), longestPauseMs);
    this.failures++;
    this.notBefore = this.parts.clock.elapsed() + pause;
    this.trouble = why;
    this.parts.warn(`mcp.servers.${this.name} ${why}${lastOutput === '' ? '' : `; its last output: ${plainLine(masked(lastOutput))}`}`);
  }

  /** Gives up a connection that no longer works. */
  private drop(connection: Connection, why: string): void {
    this.lost(connection, why);
    this.end(connection);
  }

  /** However often a server says that its tools have changed: one refresh is under way at a time, and they have a pause between them. */
  private async refresh(connection: Connection): Promise<void> {
    this.stale = true;
    if (this.refreshing === connection) return;
    this.refreshing = connection;
    const isMine = () => this.refreshing === connection && (this.current ?? connection) === connection;
    try {
      while (this.stale && isMine()) {
        const wait = this.nextRefresh - this.parts.clock.elapsed();
        if (wait > 0) await sleep(this.parts.clock, wait, this.closed.signal);
        if (!isMine()) return;
        this.stale = false;
        this.listedAt = this.parts.clock.elapsed();
        this.nextRefresh = this.listedAt + refreshPauseMs;
        this.take(await this.within(startMs, this.closed.signal, (signal) => connection.list(signal)));
      }
    } catch (thrown) {
      if (!(thrown instanceof Refused)) this.drop(connection, `did not list its tools: ${plainLine(reasonOf(thrown))}`);
    } finally {
      if (this.refreshing === connection) this.refreshing = undefined;
    }
  }

  private take(listed: Listed[]): void {
    const taken = new Map<string, Tool>();
    const left: string[] = [];
    for (const one of listed) {
      const tool = taken.size < mostTools ? this.toolOf(one) : undefined;
      if (tool && !taken.has(tool.name)) taken.set(tool.name, tool);
      else left.push(plainLine(one.name, 80));
    }
    if (left.length > 0)
      this.parts.warn(
        `mcp.servers.${this.name} has tools that cannot be offered (name or schema too long, or too many): ${left.slice(0, 10).join(', ')}`,
      );
    this.tools = [...taken.values()];
    this.listedAt = this.parts.clock.elapsed();
  }

  private toolOf({ name: given, description, inputSchema }: Listed): Tool | undefined {
    const name = outsideTool(this.name, given);
    const schema = tame(inputSchema, 0) as Record<string, unknown>;
    if (name.length > 64 || JSON.stringify(schema).length > largestSchema) return undefined;
    const { [given]: known } = this.settings.tools;
    const effect = known?.effect ?? this.settings.effect;
    return {
      name,
      description: plainLine(description ?? given, longestDescription),
      params: z.record(z.string(), z.unknown()),
      schema,
      effect,
      run: (context, args) => this.call(given, args, effect, context.key, context.signal),
    };
  }

  private async call(
    tool: string,
    args: Record<string, unknown>,
    effect: Tool['effect'],
    key: string,
    signal: AbortSignal,
  ): Promise<ToolOutcome> {
    for (let attempt = 1; ; attempt++) {
      const connection = await untilAborted(signal, this.connected());
      try {
        const result = await this.within(this.settings.timeoutSeconds * 1_000, signal, (until) => connection.call(tool, args, key, until));
        this.failures = 0;
        return { value: textOf(result), isError: result.isError === true };
      } catch (thrown) {
        signal.throwIfAborted();
        if (thrown instanceof Refused)
          return failure('TOOL_FAILED', `server "${this.name}" refused the call: ${plainLine(thrown.message)}`);
        const late = thrown instanceof Late;
        if (late) void this.check(connection);
        else this.drop(connection, `failed in a call: ${plainLine(reasonOf(thrown))}`);
        const what = late ? `did not answer in ${this.settings.timeoutSeconds} s` : 'was lost during the call';
        if (effect === 'once' && !(thrown instanceof NotSent))
          return failure(
            'OUTCOME_UNKNOWN',
            `server "${this.name}" ${what}; the call may or may not have taken effect, so check before you make it again`,
          );
        if (late || attempt === 2) throw this.unavailable(`${what}; try again later`);
      }
    }
  }

  /** After a call without an answer: checks whether the server still works. */
  private async check(connection: Connection): Promise<void> {
    try {
      await this.within(pingMs, this.closed.signal, (signal) => connection.ping(signal));
    } catch {
      this.drop(connection, 'does not answer');
    }
  }

  /** The result of the work, or a timeout even if the work ignores the signal. */
  private async within<T>(ms: number, signal: AbortSignal, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const late = new AbortController();
    const cancel = this.parts.clock.after(ms, () => late.abort(new Late(`it took longer than ${ms / 1_000} s`)));
    const until = AbortSignal.any([signal, late.signal]);
    try {
      return await untilAborted(until, work(until));
    } finally {
      cancel();
    }
  }

  private unavailable(why: string): InterlaneError {
    return new InterlaneError('UNAVAILABLE', `server "${this.name}" ${why}`);
  }
}

class Late extends Error {}

const failure = (code: string, error: string): ToolOutcome => ({ value: { status: 'error', code, error }, isError: true });

/** A schema for a model: hints are shortened, deep parts removed. */
function tame(value: unknown, depth: number): unknown {
  if (typeof value === 'string') return plainLine(value, longestHint);
  if (typeof value !== 'object' || value === null) return value;
  if (depth > 12) return {};
  if (Array.isArray(value)) return value.map((one) => tame(one, depth + 1));
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, one]) => (name === '$schema' ? [] : [[plainLine(name, longestHint), tame(one, depth + 1)]])),
  );
}

function textOf({ content, structuredContent }: Pick<CallToolResult, 'content' | 'structuredContent'>): string {
  const parts = content.map((block) => {
    if (block.type === 'text') return block.text;
    if (block.type === 'resource' && 'text' in block.resource) return block.resource.text;
    if (block.type === 'resource_link') return `[resource ${block.uri}]`;
    return `[${block.type}, omitted]`;
  });
  const text = parts.length === 0 && structuredContent !== undefined ? JSON.stringify(structuredContent) : parts.join('\n');
  return text.length <= largestAnswer
    ? text
    : `${text.slice(0, largestAnswer)}\n[cut: the first ${largestAnswer} of ${text.length} characters]`;
}

/** Programs that fail print settings: a value after `NAME=`, or after a name that sounds like a secret's, is left out. */
const masked = (output: string) => output.replace(/([\w-]+=|[\w-]*(?:key|token|secret|passw)[\w-]*["']?:\s*)\S+/gi, '$1…');
