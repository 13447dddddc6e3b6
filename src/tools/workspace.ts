// A directory that no path leads out of: each part of a path is opened through the directory before it, and no link is followed.
import { createHash } from 'node:crypto';
import { constants, existsSync } from 'node:fs';
import { lstat, mkdir, open, opendir, realpath, rename, rm, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { InterlaneError } from '../errors.ts';

const { O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY } = constants;

const longestPath = 1_024;
const deepest = 32;
/** The most names that are read from one directory before they are sorted and cut. */
const mostNames = 10_000;
export const largestFile = 1024 * 1024;
/** The names of files that are being written. They are never listed. */
const partial = /^\.interlane-[\w-]{22}\.tmp$/;

export interface FileEntry {
  name: string;
  kind: 'file' | 'directory' | 'link' | 'other';
  size: number;
}

/** An open directory. Names in it are opened through its handle, so a directory that another program puts in its place is not used. */
interface Held {
  handle: FileHandle;
  /** The path of the directory, for systems that cannot open a name through a handle. */
  path: string;
}

/** Linux can open a name through an open directory, as `openat` does. */
const throughHandles = process.platform === 'linux' && existsSync('/proc/self/fd');

export class Workspace {
  private readonly root: string;

  /** The operator chooses the directory, so it may be a link. The first write creates it. */
  constructor(root: string) {
    this.root = root;
  }

  /** The names in a directory, sorted. A workspace that does not exist yet is empty. */
  async list(path: string, limit: number): Promise<{ entries: FileEntry[]; more: boolean }> {
    const parts = partsOf(path);
    return this.inside(path, parts, false, async (held) => {
      if (!held) {
        if (parts.length === 0) return { entries: [], more: false };
        throw missing(path);
      }
      const names: string[] = [];
      for await (const { name } of await opendir(at(held))) {
        if (!partial.test(name)) names.push(name);
        if (names.length > mostNames) break;
      }
      const shown = names.toSorted().slice(0, limit);
      const entries = await Promise.all(shown.map((name) => describe(held, name)));
      return { entries: entries.filter((entry) => entry !== undefined), more: names.length > shown.length };
    });
  }

  async read(path: string, offset: number, length: number): Promise<{ bytes: Buffer; size: number }> {
    const { parents, name } = fileOf(path);
    return this.inside(path, parents, false, async (held) => {
      if (!held) throw missing(path);
      // Without O_NONBLOCK, opening a pipe would wait for its writer.
      const handle = await open(at(held, name), O_RDONLY | O_NOFOLLOW | O_NONBLOCK).catch((thrown: unknown) => refuse(thrown, path));
      try {
        const stat = await handle.stat();
        if (!stat.isFile())
          throw new InterlaneError('INVALID_REQUEST', `file ${quoted(path)} is not a file; files_list shows what there is`);
        if (offset > stat.size)
          throw new InterlaneError(
            'INVALID_REQUEST',
            `offset ${offset} is beyond the end of file ${quoted(path)}, which has ${stat.size} bytes`,
          );
        const buffer = Buffer.alloc(Math.max(0, Math.min(length, stat.size - offset)));
        const { bytesRead } = await handle.read(buffer, 0, buffer.length, offset);
        return { bytes: buffer.subarray(0, bytesRead), size: stat.size };
      } finally {
        await handle.close();
      }
    });
  }

  /** Replaces the whole file at once: a reader sees the old file or the new one. A repeated write with the same key changes nothing. */
  async write(
    path: string,
    text: string,
    key: string,
    reserve: (change: { bytes: number; files: number }) => Promise<void> = () => Promise.resolve(),
  ): Promise<{ size: number; created: boolean }> {
    const bytes = Buffer.from(text, 'utf8');
    if (bytes.length > largestFile)
      throw new InterlaneError(
        'INVALID_REQUEST',
        `file ${quoted(path)} would be ${bytes.length} bytes; at most ${largestFile} are written`,
      );
    const { parents, name } = fileOf(path);
    await mkdir(this.root, { recursive: true, mode: 0o700 }).catch((thrown: unknown) => refuse(thrown, path));
    return this.inside(path, parents, true, async (held) => {
      const there = await lstat(at(held!, name)).catch(() => undefined);
      if (there && !there.isFile())
        throw new InterlaneError(
          'INVALID_REQUEST',
          `file ${quoted(path)} is a ${there.isDirectory() ? 'directory' : 'link or device'}; choose another name`,
        );
      await reserve({ bytes: bytes.length - (there?.size ?? 0), files: there ? 0 : 1 });
      const half = at(held!, `.interlane-${createHash('sha256').update(key).digest('base64url').slice(0, 22)}.tmp`);
      await rm(half, { force: true });
      const handle = await open(half, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, there ? there.mode & 0o777 : 0o600).catch(
        (thrown: unknown) => refuse(thrown, path),
      );
      try {
        await handle.writeFile(bytes);
        await handle.sync();
      } finally {
        await handle.close();
      }
      await rename(half, at(held!, name)).catch(async (thrown: unknown) => {
        await rm(half, { force: true });
        return refuse(thrown, path);
      });
      await held!.handle.sync();
      return { size: bytes.length, created: there === undefined };
    });
  }

  /** Counts the files and their bytes. It stops when there are more than `most`. */
  async count(most: { bytes: number; files: number }): Promise<{ bytes: number; files: number }> {
    const found = { bytes: 0, files: 0 };
    const open = [''];
    for (let path = open.pop(); path !== undefined && found.bytes <= most.bytes && found.files <= most.files; path = open.pop()) {
      const at = path;
      const { entries } = await this.list(at, mostNames);
      for (const { name, kind, size } of entries) {
        if (kind === 'directory') open.push(at === '' ? name : `${at}/${name}`);
        else found.files++;
        if (kind === 'file') found.bytes += size;
      }
    }
    return found;
  }

  /** Opens the directories of a path, each through the one before it. `held` is undefined if one of them does not exist. */
  private async inside<T>(whole: string, parts: string[], make: boolean, work: (held: Held | undefined) => Promise<T>): Promise<T> {
    let held = await this.openRoot();
    try {
      for (const [depth, name] of parts.entries()) {
        if (!held) break;
        const path = parts.slice(0, depth + 1).join('/');
        if (make)
          await mkdir(at(held, name), { mode: 0o700 }).catch((thrown: unknown) =>
            codeOf(thrown) === 'EEXIST' ? undefined : refuse(thrown, path),
          );
        const next: Held | undefined = await openDirectory(held, name, path);
        await held.handle.close();
        held = next;
      }
      return await work(held);
    } catch (thrown) {
      return refuse(thrown, whole);
    } finally {
      await held?.handle.close().catch(() => {});
    }
  }

  private async openRoot(): Promise<Held | undefined> {
    try {
      const path = await realpath(this.root);
      return { handle: await open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW), path };
    } catch (thrown) {
      if (codeOf(thrown) === 'ENOENT') return undefined;
      throw new InterlaneError('FILE_UNREADABLE', `workspace cannot be opened (${codeOf(thrown) ?? 'unknown'}); tell the operator`);
    }
  }
}

async function openDirectory(held: Held, name: string, path: string): Promise<Held | undefined> {
  try {
    const next = { handle: await open(at(held, name), O_RDONLY | O_DIRECTORY | O_NOFOLLOW), path: join(held.path, name) };
    if (throughHandles || (await realpath(next.path)) === next.path) return next;
    // A link replaced the directory between the two calls, so the open directory may be anywhere.
    await next.handle.close();
    throw new InterlaneError('INVALID_REQUEST', `path ${quoted(path)} is a link, and links are not followed`);
  } catch (thrown) {
    if (codeOf(thrown) === 'ENOENT') return undefined;
    return refuse(thrown, path);
  }
}

function at({ handle, path }: Held, name = '.'): string {
  return throughHandles ? `/proc/self/fd/${handle.fd}/${name}` : join(path, name);
}

async function describe(held: Held, name: string): Promise<FileEntry | undefined> {
  try {
    const stat = await lstat(at(held, name));
    const kind = stat.isFile() ? 'file' : stat.isDirectory() ? 'directory' : stat.isSymbolicLink() ? 'link' : 'other';
    return { name, kind, size: stat.size };
  } catch {
    return undefined; // it was deleted in the meantime
  }
}

/** The parts of a path. A part that leads up is refused. */
function partsOf(path: string): string[] {
  const wrong = (why: string) =>
    new InterlaneError('INVALID_REQUEST', `path ${quoted(path)} ${why}; give one inside your workspace, like notes/today.md`);
  if (path.length > longestPath) throw wrong('is too long');
  if (path.includes('\0') || path.includes('\\')) throw wrong('has a character that paths here cannot have');
  if (path.startsWith('/') || path.startsWith('~')) throw wrong('is not relative');
  const parts = path.split('/').filter((part) => part !== '' && part !== '.');
  if (parts.includes('..')) throw wrong('leads up with ".."');
  if (parts.length > deepest || parts.some((part) => Buffer.byteLength(part) > 255)) throw wrong('is too deep or has too long a name');
  if (parts.some((part) => partial.test(part))) throw wrong('is a name that the gateway uses');
  return parts;
}

function fileOf(path: string): { parents: string[]; name: string } {
  const parts = partsOf(path);
  const name = parts.pop();
  if (name === undefined)
    throw new InterlaneError('INVALID_REQUEST', 'path is missing; give one inside your workspace, like notes/today.md');
  return { parents: parts, name };
}

/** The error of the system, without the path of the workspace. */
function refuse(thrown: unknown, path: string): never {
  const code = codeOf(thrown);
  if (code === undefined) throw thrown;
  if (code === 'ENOENT') throw missing(path);
  const trouble = troubles.get(code);
  if (trouble !== undefined) throw new InterlaneError('TOOL_FAILED', `path ${quoted(path)} cannot be used: ${trouble}; tell the operator`);
  const why =
    code === 'ELOOP'
      ? 'is a link, and links are not followed'
      : code === 'ENOTDIR'
        ? 'is not a directory, or is a link, and links are not followed'
        : `cannot be used (${code})`;
  throw new InterlaneError('INVALID_REQUEST', `path ${quoted(path)} ${why}; files_list shows what there is`);
}

/** Errors that another path would have too. */
const troubles = new Map([
  ['EACCES', 'the gateway may not do that there'],
  ['EPERM', 'the gateway may not do that there'],
  ['EROFS', 'the file system is read-only'],
  ['ENOSPC', 'the disk is full'],
  ['EDQUOT', 'the disk is full'],
  ['EIO', 'the disk has a fault'],
  ['EMFILE', 'the gateway has too many files open'],
]);

const missing = (path: string) =>
  new InterlaneError('INVALID_REQUEST', `path ${quoted(path)} does not exist; files_list shows what there is`);
const codeOf = (thrown: unknown) => (thrown instanceof InterlaneError ? undefined : (thrown as NodeJS.ErrnoException).code);
const quoted = (path: string) => JSON.stringify(path.slice(0, 200));
