// A gateway as a program that embeds it sees it: what it may be given, and what it can be asked.
import type { McpServer } from '@modelcontextprotocol/server';
import type { Channel } from './channels/channel.ts';
import type { Clock } from './clock.ts';
import type { Change } from './config/change.ts';
import type { Places } from './config/places.ts';
import type { Config } from './config/schema.ts';
import type { Accepted } from './engine/accept.ts';
import type { Delta } from './engine/scheduler.ts';
import type { InterlaneError } from './errors.ts';
import type { Log } from './observe/log.ts';
import type { RunClass, RunView } from './protocol/run.ts';
import type { Choice, Found } from './runtimes/model/choice.ts';
import type { Script } from './runtimes/scripted/scripted.ts';
import type { Door, Listen } from './server/door.ts';
import type { InboundMessage } from './sessions/inbound.ts';
import type { Store } from './store/contract.ts';
import type { Tool } from './tools/define.ts';
import type { Warn } from './warn.ts';

export interface GatewayOptions {
  stateDir: string;
  /** Where each setting of the config is written, for messages. */
  places?: Places | undefined;
  /** Where everything is kept, and closed with the gateway; by default a SQLite file in the state directory. */
  store?: Store;
  channels?: Channel[];
  /** What the scripted model follows, until a real model is configured. */
  script?: Script;
  /** Receives what an operator should know. */
  warn?: Warn;
  /** Receives what happens, line by line. */
  log?: Log;
  /** More warnings for `status`, of the program around the gateway. */
  notes?(): string[];
  /** Called when the outcome of a write is unknown; the process must end and start again. */
  fatal?(error: InterlaneError): void;
  onDelta?(delta: Delta): void;
  /** For tests: made-up time. */
  clock?: Clock;
  /** How long live turns and messages on their way out may go on after `close()` is called. */
  graceMs?: number;
  /** For tests: fewer slots than the machine would get. */
  caps?: Record<RunClass, number>;
  /** For tests that search nothing: false keeps the index as it is. */
  search?: boolean;
  /** More tools than the built-in ones. */
  tools?: Tool[];
  /** A model that was found on this machine, for when none is configured. */
  found?: Found | undefined;
  /** For tests: what is served over MCP beside a session's own tools. */
  extendMcp?(server: McpServer): void;
  /** Where clients connect; without it there is no port. */
  listen?: Listen;
}

/** A running gateway, as a program that embeds it sees it. */
export interface Gateway {
  /** What the config says that is probably not meant, with the place of each where the file is known. */
  readonly warnings: string[];
  readonly defaultAgentId: string;
  /** A message from outside; resolves when it is safe. */
  receive(message: InboundMessage): Promise<Omit<Accepted, 'stopping'>>;
  /** The end of a run, or what it is doing when the time is over. */
  wait(runId: string, timeoutMs: number, signal?: AbortSignal): Promise<RunView>;
  /** Takes up another config where that is safe, from the next transaction on; says what waits for a restart. */
  reload(config: Config, places?: Places): Promise<Change>;
  /** A changed config could not be read: `status` tells it, until another one is taken up. */
  configRejected(why: string): void;
  /** The model that answers an agent's sessions which set nothing else; undefined where it is the scripted model. */
  modelOf(agentId: string): Choice | undefined;
  /** The port for clients, if one was asked for. */
  server?: Door;
  close(): Promise<void>;
}
