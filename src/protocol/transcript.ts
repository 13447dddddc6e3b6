// A transcript entry in tools, RPC, HTTP and events.
import { z } from 'zod';
import { Level } from './labels.ts';

/** The origin of an input. The gateway writes it from its own facts, never from text. */
export const Provenance = z.strictObject({
  kind: z.enum(['user', 'inter_session', 'announce', 'task', 'hook', 'system']),
  /** Key of the session an inter-session message came from. */
  sourceSession: z.string().optional(),
  sourceTool: z.string().optional(),
  channel: z.string().optional(),
});
export type Provenance = z.infer<typeof Provenance>;

/** How a message between sessions came about. Stored beside the message; `src/wording.ts` says it to models. */
export const TurnContext = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('request'), from: z.string() }),
  z.strictObject({
    kind: z.literal('reply'),
    from: z.string(),
    turn: z.int(),
    of: z.int(),
    /** The side of the exchange that reads this. */
    side: z.enum(['requester', 'target']),
  }),
  z.strictObject({
    kind: z.literal('announce'),
    /** Missing when the requester no longer exists. */
    from: z.string().exactOptional(),
    request: z.string(),
    firstReply: z.string(),
    latestReply: z.string().exactOptional(),
  }),
]);
export type TurnContext = z.infer<typeof TurnContext>;

export const Block = z.union([
  z.strictObject({ type: z.literal('text'), text: z.string(), truncated: z.literal(true).optional() }),
  z.strictObject({ type: z.literal('toolCall'), id: z.string(), name: z.string(), arguments: z.record(z.string(), z.unknown()) }),
]);
export type Block = z.infer<typeof Block>;

/** Why a model's text is incomplete: the length limit, or the provider's filter. */
export const Cut = z.enum(['length', 'filter']);
export type Cut = z.infer<typeof Cut>;

export const TranscriptMessage = z.strictObject({
  id: z.string(),
  seq: z.int(),
  role: z.enum(['user', 'assistant', 'toolResult']),
  content: z.array(Block),
  provenance: Provenance.optional(),
  toolCallId: z.string().optional(),
  toolName: z.string().optional(),
  isError: z.boolean().optional(),
  /** Set on the partial text of a stopped turn. */
  aborted: z.literal(true).optional(),
  cut: Cut.optional(),
  /** Set on a reply that a rule withheld from the chat that it was for. */
  withheld: z.literal(true).optional(),
  /** Set on a summary that replaces all older messages for the model. */
  summary: z.literal(true).optional(),
  runId: z.string().optional(),
  taint: Level,
  timestamp: z.int(),
});
export type TranscriptMessage = z.infer<typeof TranscriptMessage>;
