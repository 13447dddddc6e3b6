// files_list, files_read, files_write: the files in a session's own workspace.
import { z } from 'zod';
import { InterlaneError } from '../errors.ts';
import { levelName } from '../levels.ts';
import { mayFlow } from '../rules/taint.ts';
import { refusal } from '../wording.ts';
import { defineTool, type ToolContext, type ToolOutcome } from './define.ts';
import { placeLevel, recountRoom, takeRoom } from './workspace-room.ts';
import { largestFile, Workspace } from './workspace.ts';

const path = z.string().min(1).max(1_024);
/** The most bytes of one answer. */
const largestRead = 64 * 1024;

/** The result has the level of the directory, even if it is a refusal: whether a file exists is a fact about the directory. */
async function inWorkspace(tool: string, context: ToolContext, work: (workspace: Workspace) => Promise<unknown>): Promise<ToolOutcome> {
  const { store, session, highest } = context;
  const place = context.workspace(session);
  const level = async () => Math.max(session.taint, await store.read(placeLevel, { name: place.name, older: place.older }));
  const before = levelName(await level());
  if (!mayFlow(before, highest)) throw new InterlaneError('ABOVE_CLEARANCE', refusal.workspaceAbove(tool, before, highest));
  try {
    const value = await work(new Workspace(place.path));
    // A directory rises before a file is written to it, so this reads the level after the file.
    return { value, taint: await level() };
  } catch (thrown) {
    if (!(thrown instanceof InterlaneError) || thrown.code === 'LEASE_LOST') throw thrown;
    return { value: { status: 'error', code: thrown.code, error: thrown.message }, isError: true, taint: await level() };
  }
}

export const filesList = defineTool({
  name: 'files_list',
  description: 'List a directory of your workspace.',
  effect: 'pure',
  params: z.strictObject({
    path: path.optional().describe('directory (default: all of it)'),
    limit: z.number().min(1).optional().describe('at most this many (default 200, at most 1000)'),
  }),
  async run(context, args) {
    const limit = Math.min(Math.floor(args.limit ?? 200), 1_000);
    return inWorkspace('files_list', context, async (workspace) => {
      const { entries, more } = await workspace.list(args.path ?? '', limit);
      const shown = entries.map(({ name, kind, size }) =>
        kind === 'file' ? { name, size } : kind === 'directory' ? { name: `${name}/` } : { name, kind },
      );
      return { count: shown.length, entries: shown, ...(more ? { truncated: true } : {}) };
    });
  },
});

export const filesRead = defineTool({
  name: 'files_read',
  description: 'Read a text file of your workspace.',
  effect: 'pure',
  params: z.strictObject({
    path: path.describe('file'),
    offset: z
      .number()
      .min(0)
      .refine(Number.isInteger, 'must be a whole number')
      .optional()
      .describe('byte to start at: nextOffset of the part before'),
  }),
  async run(context, args) {
    const offset = args.offset ?? 0;
    return inWorkspace('files_read', context, async (workspace) => {
      const { bytes, size } = await workspace.read(args.path, offset, largestRead);
      const { text, used } = textOf(bytes, offset + bytes.length < size, args.path);
      const next = offset + used;
      return { size, text, ...(next < size ? { nextOffset: next } : {}) };
    });
  },
});

export const filesWrite = defineTool({
  name: 'files_write',
  description: 'Write a whole text file in your workspace; missing directories are created.',
  effect: 'keyed',
  params: z.strictObject({
    path: path.describe('file'),
    text: z.string().max(largestFile).describe('its whole new content'),
  }),
  async run(context, args) {
    const { store, session, room: most } = context;
    const { name, counted } = context.workspace(session);
    return inWorkspace('files_write', context, (workspace) =>
      inTurn(name, () =>
        workspace.write(args.path, args.text, context.key, async (change) => {
          const take = () => store.write(takeRoom, { name, level: session.taint, ...change, most });
          await take().catch(async (thrown: unknown) => {
            if (!(thrown instanceof InterlaneError) || thrown.code !== 'WORKSPACE_FULL') throw thrown;
            await store.write(recountRoom, { name, ...(await new Workspace(counted).count(most)) });
            await take();
          });
        }),
      ),
    );
  },
});

/** The last write of each workspace that is being written to. */
const writes = new Map<string, Promise<unknown>>();

/** One write at a time into a workspace: the size of the old file is part of the reservation, so no other write may replace it meanwhile. */
async function inTurn<T>(name: string, write: () => Promise<T>): Promise<T> {
  const turn = (writes.get(name) ?? Promise.resolve()).then(write);
  const over = turn.catch(() => {});
  writes.set(name, over);
  try {
    return await turn;
  } finally {
    if (writes.get(name) === over) writes.delete(name);
  }
}

/** A part may end in the middle of a character; the next part then begins with it. */
function textOf(bytes: Buffer, more: boolean, name: string): { text: string; used: number } {
  let used = bytes.length;
  if (more) while (used > Math.max(0, bytes.length - 4) && !isText(bytes.subarray(0, used))) used--;
  const part = bytes.subarray(0, used);
  if (!isText(part) || part.includes(0))
    throw new InterlaneError('INVALID_REQUEST', `file ${JSON.stringify(name.slice(0, 200))} is not text; only text files can be read`);
  return { text: part.toString('utf8'), used };
}

function isText(bytes: Buffer): boolean {
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    return true;
  } catch {
    return false;
  }
}
