// The lattice of labels: PUBLIC < INTERNAL < CONFIDENTIAL < RESTRICTED. Information flows to equal or higher levels only.
import { levels, type Level } from '../protocol/labels.ts';

const rank = (level: Level) => levels.indexOf(level);

/** The level of two things put together. */
export function join(a: Level, b: Level): Level {
  return rank(a) >= rank(b) ? a : b;
}

/** The lower of two ceilings. */
export function meet(a: Level, b: Level): Level {
  return rank(a) <= rank(b) ? a : b;
}

/** The level of many things put together. */
export function joinAll(all: Iterable<Level>): Level {
  let highest: Level = 'PUBLIC';
  for (const level of all) highest = join(highest, level);
  return highest;
}

export function mayFlow(from: Level, to: Level): boolean {
  return rank(from) <= rank(to);
}

/** The label of data: an unknown label counts as the highest, so that it can never lower a level. */
export function dataLevel(label: unknown): Level {
  return knownLevel(label) ?? 'RESTRICTED';
}

/** The label of a destination: undefined for an unknown label, and then nothing may flow there. */
export function destinationLevel(label: unknown): Level | undefined {
  return knownLevel(label);
}

function knownLevel(label: unknown): Level | undefined {
  return levels.find((level) => level === label);
}
