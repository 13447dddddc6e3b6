// Writers that come second: a row that another command has moved on is not written, and the body runs again.
import { expect, it } from 'vitest';
import { Conflict, type Body, type Command, type Writing } from '../contract.ts';
import { memoryStore } from '../memory.ts';
import * as exchanges from './exchanges.ts';
import * as lanes from './run-lanes.ts';
import * as runs from './runs.ts';
import * as waits from './waits.ts';

const run = <R>(body: (t: Writing) => Body<R>): Promise<R> => {
  const command: Command<object, R> = { name: 'test', body: (t) => body(t) };
  return memoryStore().write(command, {});
};

function* aRun(t: Writing): Body<number> {
  yield* t.lock('lane:k');
  return (yield* t.one<{ pk: number }>(
    `INSERT INTO runs (id, session_pk, lane, class, ready_pos, deliver, queued_at) VALUES ('r', 1, 'k', 'main', 1, 0, 0) RETURNING pk`,
  ))!.pk;
}

const ended: runs.End = { outcome: 'ok', replySeq: null, code: null, error: null, usedMs: 0, spent: runs.nothingSpent, now: 1 };

/** What a part throws, inside the command. */
function* thrownBy(part: Body<void>): Body<unknown> {
  try {
    yield* part;
    return undefined;
  } catch (thrown) {
    return thrown;
  }
}

it('a run is claimed once: of two gateways that read it ready, the second claims nothing', async () => {
  const claims = await run(function* (t) {
    const pk = yield* aRun(t);
    const [one, other] = [yield* runs.get(t, pk), yield* runs.get(t, pk)];
    return [yield* runs.claim(t, one, 1, 0), yield* runs.claim(t, other, 2, 0), (yield* runs.get(t, pk)).owner];
  });
  expect(claims).toEqual([true, false, 1]);
});

it('a run that was made unready since is not claimed', async () => {
  const claimed = await run(function* (t) {
    const pk = yield* aRun(t);
    const one = yield* runs.get(t, pk);
    yield* lanes.setReady(t, pk, null);
    return yield* runs.claim(t, one, 1, 0);
  });
  expect(claimed).toBe(false);
});

it('a run ends once', async () => {
  const thrown = await run(function* (t) {
    const pk = yield* aRun(t);
    yield* runs.end(t, pk, ended);
    return yield* thrownBy(runs.end(t, pk, { ...ended, outcome: 'error' }));
  });
  expect(thrown).toBeInstanceOf(Conflict);
});

it('an exchange is advanced from the version that was read', async () => {
  const thrown = await run(function* (t) {
    const made = { id: 'x', requesterPk: 1, targetPk: 2, origin: undefined, maxTurns: 1, hop: 1, dueAt: 9, now: 0 };
    const one = yield* exchanges.insert(t, made);
    const other = (yield* exchanges.byPk(t, one.pk))!;
    yield* exchanges.save(t, one, 10);
    yield* exchanges.save(t, one, 11);
    return yield* thrownBy(exchanges.save(t, other, 12));
  });
  expect(thrown).toBeInstanceOf(Conflict);
});

it('a call gets its result once', async () => {
  const thrown = await run(function* (t) {
    const row = { run_pk: 1, step: 1, idx: 0, lane: 'a', target_kind: 'run' as const, target_pk: 2, target_lane: 'b', due_at: 0 };
    yield* waits.insert(t, row);
    const [wait] = yield* waits.due(t, 1, 1);
    yield* waits.removeCall(t, wait!);
    return yield* thrownBy(waits.removeCall(t, wait!));
  });
  expect(thrown).toBeInstanceOf(Conflict);
});

it('the order of claims goes on from the highest number in use, also among resumed runs', async () => {
  const resumeFirst = -(2 ** 52);
  const high = await run(function* (t) {
    const pk = yield* aRun(t);
    yield* lanes.setReady(t, pk, 41);
    const plain = yield* runs.highestReady(t, resumeFirst);
    yield* lanes.setReady(t, pk, resumeFirst + 77);
    return [plain, yield* runs.highestReady(t, resumeFirst)];
  });
  expect(high).toEqual([41, 77]);
});
