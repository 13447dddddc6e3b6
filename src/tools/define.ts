// What a tool is: a name and words for a model, a closed schema, its effect, and a function of a caller it cannot choose.
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

/** What tools need from parts that lie above them; the gateway supplies it. */
export interface ToolParts {
  store: Store;
  cursors: Cursors;
  engine: Engine;
  /** A message from one session to another. */
  send(args: SendArgs): Promise<Sent>;
  /** What a session is answered by; undefined where it is a script. */
  modelOf(session: SessionRow): ModelView | undefined;
  /** Whether somebody takes the turns of a guest's session. */
  online(sessionKey: string): boolean;
  /** The file a transcript was written to, if it was. */
  transcriptPath(sessionId: string): string | undefined;
  /** Where the files of a session are. */
  workspaceDir(session: SessionRow): string;
  /** Asks the model of a session for a summary of messages of that session. */
  recap(session: SessionRow, focus: RecapFocus, messages: PromptMessage[], signal: AbortSignal): Promise<{ text: string; usage: Usage }>;
}

/** What a summary is to be about: everything, or one topic; without its name, the latest. */
export interface RecapFocus {
  scope: 'session' | 'topic';
  topic?: string | undefined;
}

/** I7. Who calls and with what right, made by the gateway for each call; arguments never name the caller. */
export interface ToolContext extends ToolParts {
  world: World;
  /** Reply-back turns of an exchange, at most. */
  maxPingPongTurns: number;
  now: number;
  /** What the call is made by: a run's step, or a caller from outside that is this session. */
  origin: SendOrigin;
  /** The turn that calls, if one does. */
  turn?: Turn | undefined;
  /** The same for the same call, also after a crash: what an outside effect is keyed by. */
  key: string;
  signal: AbortSignal;
  session: SessionRow;
  caller: Party;
  /** Every tool there is, and whether this session gets it. */
  toolsOf(session: SessionRow): ToolAnswer[];
}

/** A value goes to the model as JSON; `pending` means that the result will be written by whoever answers the wait. */
export type ToolOutcome = { value: unknown; isError?: boolean; taint?: number; usage?: Usage } | { pending: true };

export interface Tool {
  name: string;
  description: string;
  params: z.ZodType<Record<string, unknown>>;
  /** What a crash in the middle means: `pure` and `keyed` are done again, `once` is reported as unknown. */
  effect: 'pure' | 'keyed' | 'once';
  /** It asks a model, which somebody pays for. */
  costs?: true;
  /** Level of what it returns, unless `classification.tools` says otherwise. */
  level?: Level | undefined;
  /** Its arguments as JSON Schema, where they are checked by somebody else. */
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

/** Another spelling of an argument: taken, and not shown to models. */
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

/** What a model is told of a tool's arguments: their names, types and meaning. Limits are checked by us, and cost words. */
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
