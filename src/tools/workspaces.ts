// The workspace directory of each session. It is deleted with its session.
import { existsSync, realpathSync } from 'node:fs';
import { readdir, rm } from 'node:fs/promises';
import { join, resolve, sep } from 'node:path';
import type { Finding } from '../finding.ts';
import { agentId } from '../protocol/ids.ts';
import type { AgentEntry } from '../protocol/settings.ts';
import { isMain, keyContext } from '../rules/agents.ts';
import type { World } from '../rules/decide.ts';
import { requireSessionKey } from '../rules/session-key.ts';
import { fileNameOf, idOfFile } from '../sessions/transcripts.ts';
import type { ReadQuery, Store } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import { workspacesFolder } from '../store/sqlite/files.ts';
import { hasId } from '../store/tables/sessions.ts';
import type { Place } from './workspace-room.ts';

/** An agent's main session has the directory that the config sets; any other session has one of its own. */
export function workspaceDirs(
  { agents }: World,
  list: Pick<AgentEntry, 'id' | 'workspace'>[],
  { stateDir, home }: { stateDir: string; home: string },
): (session: Pick<SessionRow, 'key' | 'agent' | 'id'>) => Place {
  const state = real(stateDir);
  const configured = new Map<string, string>();
  for (const { id, workspace } of list) {
    if (workspace === undefined) continue;
    configured.set(agentId(id), pathOf(workspace, home));
  }
  // A directory inside another one has the level of the outermost.
  const paths = [...configured.values()].toSorted((a, b) => a.length - b.length);
  const outermost = (path: string) => paths.find((other) => isWithin(path, other))!;
  return ({ key, agent, id }) => {
    const path = isMain(requireSessionKey(key, keyContext(agents, agent))) ? configured.get(agent) : undefined;
    if (path !== undefined) {
      const counted = outermost(path);
      return { path, counted, name: `dir:${counted}`, older: `agent:${agent}` };
    }
    const name = `session:${id}`;
    const own = join(state, workspacesFolder, agent, fileNameOf(id));
    return { path: own, counted: own, name, older: name };
  };
}

/** A tool whose workspace contained the state directory could read transcripts and tokens. */
export function workspaceFindings(
  list: Pick<AgentEntry, 'workspace'>[],
  { stateDir, home }: { stateDir: string; home: string },
): Finding[] {
  const state = real(stateDir);
  return list.flatMap(({ workspace }, index): Finding[] => {
    const path = workspace === undefined ? undefined : pathOf(workspace, home);
    if (path === undefined || !(isWithin(state, path) || isWithin(path, state))) return [];
    const says = `and the state directory ${stateDir} lie in one another; choose another directory`;
    return [{ path: ['agents', 'list', index, 'workspace'], says, refuses: true }];
  });
}

/** Deletes the directories of sessions that no longer exist. A session gets its row before its directory. */
export async function forgetWorkspaces(stateDir: string, store: Pick<Store<never>, 'read'>): Promise<void> {
  const root = join(stateDir, workspacesFolder);
  for (const agent of await readdir(root).catch(() => [])) {
    for (const name of await readdir(join(root, agent)).catch(() => [])) {
      const id = idOfFile(name);
      if (id !== undefined && !(await store.read(isKnown, { id }))) await rm(join(root, agent, name), { recursive: true, force: true });
    }
  }
}

const isKnown: ReadQuery<{ id: string }, boolean> = {
  name: 'known session',
  *body(t, { id }) {
    return yield* hasId(t, id);
  },
};

const pathOf = (workspace: string, home: string) => real(workspace.replace(/^~(?=\/)/, home));
const real = (path: string) => (existsSync(path) ? realpathSync(path) : resolve(path));
const isWithin = (path: string, directory: string) =>
  path === directory || path.startsWith(directory.endsWith(sep) ? directory : directory + sep);
