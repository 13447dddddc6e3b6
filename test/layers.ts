// The one table of import directions: the architecture test and the linter's configuration both read it.

/** Lowest first. A part may import from the tiers below its own, and from nothing beside or above it. */
export const tiers = [
  ['protocol'],
  ['errors.ts', 'gaps.ts', 'abort.ts', 'json-shape.ts', 'finding.ts', 'warn.ts'],
  ['clock.ts', 'cursor.ts', 'durations.ts', 'levels.ts', 'nearest.ts', 'pace.ts', 'round-robin.ts', 'there.ts'],
  ['rules', 'config', 'store', 'client'],
  ['events', 'wording.ts'],
  ['engine'],
  ['flows'],
  ['sessions'],
  ['tools', 'channels'],
  ['runtimes', 'delivery', 'mcp'],
  ['observe'],
  ['mistakes.ts'],
  ['setup.ts'],
  ['live-setup.ts'],
  ['server'],
  ['embed.ts'],
  ['open-store.ts'],
  ['gateway.ts'],
  ['start.ts'],
  ['cli'],
  ['main.ts'],
];

/** The files of a part, as a glob of the linter. */
export const filesOf = (part: string) => (part.endsWith('.ts') ? `src/${part}` : `src/${part}/**/*.ts`);

/** What a part may not import, as patterns of the linter. */
export function bannedFor(part: string): string[] {
  const height = tiers.findIndex((tier) => tier.includes(part));
  const banned = tiers
    .slice(height)
    .flat()
    .filter((other) => other !== part);
  return [...banned.map((other) => (other.endsWith('.ts') ? `**/${other}` : `**/${other}/**`)), '**/index.ts'];
}
