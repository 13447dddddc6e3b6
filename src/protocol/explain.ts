// The questions `explain` answers: where a message goes, what a key means, whether text may leave, whether one session
// reaches another, which tools a session gets.
import { z } from 'zod';
import { ChatTypeWord } from './labels.ts';
import { Origin } from './message.ts';
import { SessionFacts } from './session.ts';

export const ExplainRoute = Origin;
export const ExplainKey = z.strictObject({ key: z.string().min(1).max(131_072), agentId: z.string().optional() });
export const ExplainSend = z.strictObject({
  session: SessionFacts,
  channel: z.string().min(1).optional(),
  chatType: ChatTypeWord.optional(),
  text: z.string().optional(),
});
export const ExplainAccess = z.strictObject({
  action: z.enum(['list', 'read', 'status', 'send']).default('read'),
  caller: SessionFacts,
  target: SessionFacts,
  text: z.string().optional(),
});
export const ExplainTools = z.strictObject({ session: SessionFacts, tool: z.string().min(1).max(128).optional() });
