// Levels by name and by rank: rows have ranks, everything else uses names.
import { levels, type Level } from './protocol/labels.ts';

/** An unknown rank counts as the highest level. */
export const levelName = (rank: number): Level => levels[rank] ?? 'RESTRICTED';
export const levelRank = (level: Level): number => levels.indexOf(level);
