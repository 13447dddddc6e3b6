// The words of the session key grammar. A main session cannot be called like one, and an id never spells one.
export const ownedShapes = ['cron', 'hook', 'node', 'subagent', 'acp', 'guest'] as const;
export const chatWords = new Set(['direct', 'dm', 'group', 'channel']);
export const threadWords = new Set(['thread', 'topic']);
/** Words that, at the start of a key, say what kind of session it is. */
export const shapeWords = new Set<string>(['agent', 'direct', 'dm', ...ownedShapes]);
export const grammarWords = new Set([...shapeWords, ...chatWords, ...threadWords]);
export const reservedKeys = new Set(['global', 'unknown']);
