// The lattice of labels: PUBLIC < INTERNAL < CONFIDENTIAL < RESTRICTED. Information flows to equal or higher levels only.
import { levels, type Level } from '../protocol/labels.ts';

const rank = (level: Level) => levels.indexOf(level);

/** The level of two things put together. */
export function join(a: Level, b: Level): Level {
  return rank(a) >= rank(b) ? a : b;
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

/** A label found on data: one we do not know is treated as the highest, so that it can never lower anything. */
export function dataLevel(label: unknown): Level {
  return knownLevel(label) ?? 'RESTRICTED';
}

/** A label found on a destination: undefined for one we do not know, and nothing may flow there. */
export function destinationLevel(label: unknown): Level | undefined {
  return knownLevel(label);
}

function knownLevel(label: unknown): Level | undefined {
  return levels.find((level) => level === label);
}
