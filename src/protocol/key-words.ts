// The words of the session key grammar. None may be the name of a main session, and an id never spells one.
export const ownedShapes = ['cron', 'hook', 'node', 'subagent', 'acp', 'guest'] as const;
export const chatWords = new Set(['direct', 'dm', 'group', 'channel']);
export const threadWords = new Set(['thread', 'topic']);
/** Words at the start of a key that name the kind of session. */
export const shapeWords = new Set<string>(['agent', 'direct', 'dm', ...ownedShapes]);
export const grammarWords = new Set([...shapeWords, ...chatWords, ...threadWords]);
export const reservedKeys = new Set(['global', 'unknown']);
