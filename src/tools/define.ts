// A tool: a name and a description for models, a closed schema, its effect, and a function. The gateway passes in the caller.
import { z } from 'zod';
import type { Cursors } from '../cursor.ts';
import { InterlaneError } from '../errors.ts';
import type { Engine } from '../engine/engine.ts';
import type { ModelView, PromptMessage, Turn, Usage } from '../engine/runner.ts';
import type { SendArgs, SendOrigin, Sent } from '../flows/send.ts';
import type { Level } from '../protocol/labels.ts';
import type { Party, World } from '../rules/decide.ts';
import type { ToolAnswer } from '../rules/tool-policy.ts';
import type { Viewer } from '../rules/viewer.ts';
import type { Store } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import type { Place, Room } from './workspace-room.ts';
import type { Pace } from '../pace.ts';

/** The dependencies of tools on higher layers; the gateway supplies them. */
export interface ToolParts {
  store: Store;
  cursors: Cursors;
  engine: Engine;
  /** A message from one session to another. */
  send(args: SendArgs): Promise<Sent>;
  /** The model of a session; undefined for the scripted model. */
  modelOf(session: SessionRow): ModelView | undefined;
  /** Whether the guest of a session is connected. */
  online(sessionKey: string): boolean;
  /** The file of a transcript, if it was written to one. */
  transcriptPath(sessionId: string): string | undefined;
  /** Where the files of a session are. */
  workspace(session: SessionRow): Place;
  /** Summarises messages of a session with the session's own model. */
  recap(session: SessionRow, focus: RecapFocus, messages: PromptMessage[], signal: AbortSignal): Promise<{ text: string; usage: Usage }>;
}

/** The subject of a summary: everything, or one topic; by default the latest topic. */
export interface RecapFocus {
  scope: 'session' | 'topic';
  topic?: string | undefined;
}

/** I7. The caller and its rights. The gateway makes this for each call; arguments never name the caller. */
export interface ToolContext extends ToolParts, Pace {
  world: World;
  /** The most reply-back turns of an exchange. */
  maxPingPongTurns: number;
  now: number;
  /** The origin of the call: a run's step, or an outside caller that acts as this session. */
  origin: SendOrigin;
  /** The turn that makes the call, if any. */
  turn?: Turn | undefined;
  /** The same for the same call, even after a crash; use it as the idempotency key of outside effects. */
  key: string;
  session: SessionRow;
  caller: Party;
  /** The highest level of a result that this caller gets. */
  highest: Level;
  /** The most that sessions may write into one workspace. */
  room: Room;
  /** All tools, and whether this session gets each. */
  toolsOf(session: SessionRow): ToolAnswer[];
}

/** A value goes to the model as JSON; `pending` means that the end of the wait writes the result. */
export type ToolOutcome = { value: unknown; isError?: boolean; taint?: number; usage?: Usage } | { pending: true };

export interface Tool {
  name: string;
  description: string;
  params: z.ZodType<Record<string, unknown>>;
  /** What happens after a crash during a call: `pure` and `keyed` calls are repeated, a `once` call is reported as unknown. */
  effect: 'pure' | 'keyed' | 'once';
  /** It uses a model, which costs money. */
  costs?: true;
  /** Its arguments as JSON Schema, if an outside server validates them. */
  schema?: Record<string, unknown>;
  run(context: ToolContext, args: Record<string, unknown>): Promise<ToolOutcome>;
}

export function defineTool<P extends z.ZodType<Record<string, unknown>>>(tool: {
  name: string;
  description: string;
  params: P;
  effect: Tool['effect'];
  costs?: true;
  run(context: ToolContext, args: z.infer<P>): Promise<ToolOutcome>;
}): Tool {
  return tool;
}

/** Another name of an argument: accepted, but not offered to models. */
export const alias = (schema: z.ZodString) => schema.optional().meta({ hidden: true });
/** An argument that must be given, under this name or its alias. */
export const needed = (schema: z.ZodString, description: string) => schema.optional().meta({ description, needed: true });

/** One value from its two spellings; both at once with different values is a mistake, not a choice. */
export function oneOf(args: Record<string, unknown>, name: string, alias: string): string | undefined {
  const [first, second] = [args[name], args[alias]] as (string | undefined)[];
  if (first !== undefined && second !== undefined && first !== second)
    throw new InterlaneError('INVALID_REQUEST', `${name} and ${alias} are two names of one argument; give one`);
  return first ?? second;
}

/** The caller of a tool as a viewer of sessions. */
export function lookOf({ world, caller, modelOf, online, transcriptPath }: ToolContext) {
  const viewer: Viewer = { as: 'session', party: caller };
  return { world, viewer, modelOf, online, transcriptPath };
}

interface Property extends Record<string, unknown> {
  hidden?: true;
  needed?: true;
}

/** The arguments in a tool definition: names, types and descriptions. Limits are omitted to save tokens; the gateway checks them. */
export function inputSchema({ params, schema }: Pick<Tool, 'params' | 'schema'>): Record<string, unknown> {
  if (schema) return schema;
  const { properties = {}, required = [] } = z.toJSONSchema(params, { io: 'input' }) as {
    properties?: Record<string, Property>;
    required?: string[];
  };
  const must = [...required];
  const shown: Record<string, unknown> = {};
  for (const [name, { hidden, needed: wanted, minLength: _, maxLength: __, minimum: ___, maximum: ____, ...rest }] of Object.entries(
    properties,
  )) {
    if (hidden) continue;
    if (wanted) must.push(name);
    shown[name] = rest;
  }
  return { type: 'object', properties: shown, ...(must.length > 0 ? { required: must } : {}) };
}
