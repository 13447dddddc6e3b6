// Levels by name and by rank: rows keep ranks, everything else says names.
import { levels, type Level } from './protocol/labels.ts';

/** An unknown rank counts as the highest level. */
export const levelName = (rank: number): Level => levels[rank] ?? 'RESTRICTED';
export const levelRank = (level: Level): number => levels.indexOf(level);
