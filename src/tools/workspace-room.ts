// The level of a workspace, and the room that is left in it. Both are a row: a reset lowers neither.
import type { EngineCommand } from '../engine/feed.ts';
import { InterlaneError } from '../errors.ts';
import type { ReadQuery } from '../store/contract.ts';
import * as workspaces from '../store/tables/workspaces.ts';

/** Where the files of a session are, and the names of its level. */
export interface Place {
  path: string;
  /** The directory that the room is counted in: the outermost one, if one workspace is inside another. */
  counted: string;
  name: string;
  /** The name of the level that files had before directories had rows. */
  older: string;
}

/** The most that sessions may write into one workspace. */
export interface Room {
  bytes: number;
  files: number;
}

export const placeLevel: ReadQuery<Pick<Place, 'name' | 'older'>, number> = {
  name: 'workspace level',
  body: (t, { name, older }) => workspaces.levelOf(t, name, older),
};

/** Before a file is written: the directory rises to the level of the text, and the file must fit. */
export const takeRoom: EngineCommand<workspaces.WorkspaceRow & { most: Room }, void> = {
  name: 'take room',
  *body(t, { most, ...change }) {
    const { bytes, files } = yield* workspaces.grow(t, change);
    if ((bytes > most.bytes && change.bytes > 0) || (files > most.files && change.files > 0))
      throw new InterlaneError(
        'WORKSPACE_FULL',
        `workspace is full: sessions may write ${most.files} files and ${most.bytes} bytes into it; write less, or ask the operator for room`,
      );
  },
};

/** Files were written and deleted by hand too, so the directory decides how much is left. */
export const recountRoom: EngineCommand<Room & { name: string }, void> = {
  name: 'recount room',
  body: (t, { name, bytes, files }) => workspaces.recount(t, name, bytes, files),
};
