// files_list, files_read, files_write: a session's own workspace, and nothing outside of it.
import { z } from 'zod';
import { InterlaneError } from '../errors.ts';
import { defineTool, type ToolContext } from './define.ts';
import { largestFile, Workspace } from './workspace.ts';

const path = z.string().min(1).max(1_024);
/** Bytes of one answer. */
const largestRead = 64 * 1024;

const workspaceOf = ({ workspaceDir, session }: ToolContext) => new Workspace(workspaceDir(session));

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
    const { entries, more } = await workspaceOf(context).list(args.path ?? '', limit);
    const shown = entries.map(({ name, kind, size }) =>
      kind === 'file' ? { name, size } : kind === 'directory' ? { name: `${name}/` } : { name, kind },
    );
    return { value: { count: shown.length, entries: shown, ...(more ? { truncated: true } : {}) }, taint: context.session.taint };
  },
});

export const filesRead = defineTool({
  name: 'files_read',
  description: 'Read a text file of your workspace.',
  effect: 'pure',
  params: z.strictObject({
    path: path.describe('file'),
    offset: z.number().min(0).optional().describe('byte to start at: nextOffset of the part before'),
  }),
  async run(context, args) {
    const offset = Math.floor(args.offset ?? 0);
    const { bytes, size } = await workspaceOf(context).read(args.path, offset, largestRead);
    const { text, used } = textOf(bytes, offset + bytes.length < size, args.path);
    const next = offset + used;
    return { value: { size, text, ...(next < size ? { nextOffset: next } : {}) }, taint: context.session.taint };
  },
});

export const filesWrite = defineTool({
  name: 'files_write',
  description: 'Write a text file in your workspace, whole; directories are made.',
  effect: 'keyed',
  params: z.strictObject({
    path: path.describe('file'),
    text: z.string().max(largestFile).describe('its whole new content'),
  }),
  async run(context, args) {
    const { size, created } = await workspaceOf(context).write(args.path, args.text, context.key);
    return { value: { size, created }, taint: context.session.taint };
  },
});

/** A part may end in the middle of a character; the next part then begins with it. */
function textOf(bytes: Buffer, more: boolean, name: string): { text: string; used: number } {
  let used = bytes.length;
  if (more) while (used > Math.max(0, bytes.length - 4) && !isText(bytes.subarray(0, used))) used--;
  const part = bytes.subarray(0, used);
  if (!isText(part) || part.includes(0))
    throw new InterlaneError('INVALID_REQUEST', `file ${JSON.stringify(name.slice(0, 200))} is not text, so it is not read`);
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
