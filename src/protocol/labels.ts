// The closed word lists of the vocabulary: taint levels, session kinds, chat types, thinking and verbose levels.
import { z } from 'zod';

/** Taint levels, lowest first. */
export const levels = ['PUBLIC', 'INTERNAL', 'CONFIDENTIAL', 'RESTRICTED'] as const;
export const Level = z.enum(levels);
export type Level = z.infer<typeof Level>;

export const SessionKind = z.enum(['main', 'group', 'cron', 'hook', 'node', 'other']);
export type SessionKind = z.infer<typeof SessionKind>;

export type ChatType = 'direct' | 'group' | 'channel';
/** What may be written for a chat type: `dm` is read as `direct` everywhere. */
export const ChatTypeWord = z.enum(['direct', 'dm', 'group', 'channel']);
export type ChatTypeWord = z.infer<typeof ChatTypeWord>;

export function chatType(word: ChatTypeWord): ChatType {
  return word === 'dm' ? 'direct' : word;
}

export const ThinkingLevel = z.enum(['off', 'minimal', 'low', 'medium', 'high', 'xhigh']);
export const VerboseLevel = z.enum(['off', 'on', 'full']);

/** Session visibility, narrowest first; each one includes the ones before it. */
export const visibilities = ['self', 'tree', 'agent', 'all'] as const;
export const Visibility = z.enum(visibilities);
export type Visibility = z.infer<typeof Visibility>;

export const HookName = z.enum([
  'PRE_CONTEXT_INJECTION',
  'PRE_TOOL_CALL',
  'POST_TOOL_RESPONSE',
  'PRE_OUTPUT',
  'SECRET_ACCESS',
  'SESSION_RESET',
  'AGENT_INVOCATION',
  'MCP_TOOL_CALL',
]);
export type HookName = z.infer<typeof HookName>;
