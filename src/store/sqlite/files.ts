// The names in a state directory.
import { readdirSync } from 'node:fs';

export const databaseName = 'interlane.db';
export const workspacesFolder = 'workspaces';
export const transcriptsFolder = 'transcripts';

/** The names in a directory; none if it cannot be read. */
export function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}
