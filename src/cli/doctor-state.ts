// What `interlane doctor` finds in the stored state: lanes that stand still, flows that are late, files of no session, a clock that was set.
import { join } from 'node:path';
import { idOfFile } from '../sessions/transcripts.ts';
import type { Body, Reading } from '../store/contract.ts';
import { namesIn, workspacesFolder } from '../store/sqlite/files.ts';
import { snapshot } from '../store/sqlite/inspect.ts';
import { due } from '../store/tables/exchanges.ts';
import { newest } from '../store/tables/feed.ts';
import { stuckLanes } from '../store/tables/run-pages.ts';
import { hasId } from '../store/tables/sessions.ts';
import { bad, note, ok, type Finding } from './doctor-finding.ts';
import { count, span } from './terminal.ts';

/** At most so many of a kind are looked for. */
const most = 100;
const named = 3;
/** The sweeper comes by more often than this, and clocks differ by less. */
const graceMs = 60_000;

/** Only for a store that was found whole. */
export function checkWork(stateDir: string, now: number, isRunning: boolean): Finding[] {
  const stored = snapshot(stateDir);
  const read = <R>(body: (t: Reading) => Body<R>) => stored.read(body);
  try {
    return [
      ...lanes(read((t) => stuckLanes(t, most))),
      ...flows(read((t) => due(t, now - graceMs, most)).length, isRunning),
      ...workspaces(stateDir, (id) => read((t) => hasId(t, id))),
      ...clock(read(newest)?.at, now),
    ];
  } finally {
    stored.close();
  }
}

function lanes(stuck: { lane: string }[]): Finding[] {
  if (stuck.length === 0) return [ok('lanes', 'every session with queued runs moves')];
  const keys = stuck.slice(0, named).map(({ lane }) => lane);
  const says = `${count(stuck.length, 'session')} with queued runs of which none can start: ${keys.join(', ')}${stuck.length > named ? ', …' : ''}`;
  return [bad('lanes', 'INTERNAL', says, `stop the queued run, or reset the session; and report it, with the log`)];
}

function flows(late: number, isRunning: boolean): Finding[] {
  if (late === 0) return [];
  const says = `${count(late, 'exchange')} between sessions should have ended`;
  return isRunning
    ? [bad('flows', 'INTERNAL', `${says}, and the gateway runs`, 'see its log; a restart looks at them again')]
    : [note('flows', says, 'the next start ends them')];
}

/** Directories whose session is gone. The gateway removes them in time. */
function workspaces(stateDir: string, isKnown: (id: string) => boolean): Finding[] {
  const root = join(stateDir, workspacesFolder);
  const gone: string[] = [];
  for (const agent of namesIn(root))
    for (const name of namesIn(join(root, agent))) {
      const id = idOfFile(name);
      if (id !== undefined && gone.length < most && !isKnown(id)) gone.push(join(root, agent, name));
    }
  if (gone.length === 0) return [];
  const says = `${count(gone.length, 'workspace')} of sessions that do not exist: ${gone.slice(0, named).join(', ')}${gone.length > named ? ', …' : ''}`;
  return [note('files', says, 'the gateway removes them; keep what you need before that')];
}

function clock(newest: number | undefined, now: number): Finding[] {
  if (newest === undefined || newest <= now + graceMs) return [];
  const says = `the newest event is ${span(newest - now)} in the future, so the clock was set back`;
  return [note('clock', says, 'check the time of this machine; times of messages may be out of order')];
}
