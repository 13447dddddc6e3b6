// What must hold after any crash, read from the database, the driver's log and the receiver's log. Knows nothing of the product's code.
import { existsSync, readFileSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';

interface Logs {
  database: string;
  /** The driver's log: what was acknowledged. */
  acked: string;
  /** The receiver's log: what arrived. */
  received: string;
  /** Start of the paths under which this crash's gateway reached the receiver. */
  prefix: string;
  /** Texts of the messages that were sent, by operation. */
  sent: Map<string, string>;
  /** The model service's log, and what was stored when each start of the gateway was killed. */
  asked?: { log: string; stored: string[][] };
}

interface RunRow {
  pk: number;
  id: string;
  state: string;
  session_pk: number;
  input: string;
  reason: string | null;
  entry_seq: number | null;
}

interface ExchangeRow {
  pk: number;
  id: string;
  max_turns: number;
  end_reason: string | null;
  requester_gone: number;
}

/** Every broken promise, in words; empty when all hold. */
export function findViolations(logs: Logs): string[] {
  const db = new DatabaseSync(logs.database, { readOnly: true });
  try {
    return [
      ...transcripts(db),
      ...runs(db),
      ...acknowledged(db, logs),
      ...stops(db, logs),
      ...told(db),
      ...exchanges(db),
      ...deliveries(db, countReceived(logs)),
      ...actions(db, countReceived(logs)),
      ...modelCalls(db, logs),
    ];
  } finally {
    db.close();
  }
}

/** Steps of models whose answer a gateway that was killed has left in the store: `m1 1`, `summary 1`. */
export function storedSteps(file: string): string[] {
  const db = new DatabaseSync(file);
  try {
    if (all(db, `SELECT 1 FROM sqlite_schema WHERE name = 'deliveries'`).length === 0) return [];
    return stepsIn(db);
  } finally {
    db.close();
  }
}

function stepsIn(db: DatabaseSync): string[] {
  const rows = all<{ text: string; step: number; ended_at: number | null }>(
    db,
    `SELECT coalesce(entries.text, inputs.text) AS text, runs.step, ended_at FROM runs JOIN inputs ON inputs.run_pk = runs.pk
     LEFT JOIN entries ON entries.session_pk = runs.session_pk AND entries.seq = inputs.entry_seq`,
  );
  const steps = rows.flatMap(({ text, step, ended_at }) =>
    Array.from({ length: step + (ended_at === null ? 0 : 1) }, (_, index) => `${text.split(' ')[0]} ${index + 1}`),
  );
  const summaries = all<{ compact_seq: number | null }>(db, 'SELECT compact_seq FROM sessions WHERE compact_seq IS NOT NULL');
  return [...steps, ...summaries.map(() => 'summary 1')];
}

function all<T>(db: DatabaseSync, sql: string, ...params: (string | number | null)[]): T[] {
  return db.prepare(sql).all(...params) as T[];
}

function linesOf<T>(file: string): T[] {
  if (!existsSync(file)) return [];
  const lines = readFileSync(file, 'utf8').split('\n');
  return lines.filter((line) => line !== '').map((line) => JSON.parse(line) as T);
}

function countReceived(logs: Logs): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { path, id } of linesOf<{ path: string; id: string }>(logs.received)) {
    if (!path.startsWith(`${logs.prefix}/`)) continue;
    const what = `${path.slice(logs.prefix.length)} ${id}`;
    counts.set(what, (counts.get(what) ?? 0) + 1);
  }
  return counts;
}

/** The transcript is dense and in order. */
function* transcripts(db: DatabaseSync): Generator<string> {
  for (const session of all<{ pk: number; key: string; next_seq: number }>(db, 'SELECT pk, key, next_seq FROM sessions')) {
    const seqs = all<{ seq: number }>(db, 'SELECT seq FROM entries WHERE session_pk = ? ORDER BY seq', session.pk).map(
      (entry) => entry.seq,
    );
    if (seqs.some((seq, index) => seq !== index + 1)) yield `session ${session.key} has a gap in its transcript: ${seqs.join(',')}`;
    if (session.next_seq !== seqs.length + 1) yield `session ${session.key} counts ${session.next_seq} after ${seqs.length} entries`;
  }
}

/** Every run has exactly one end, and its input was taken exactly once or ended with a reason. */
function* runs(db: DatabaseSync): Generator<string> {
  const rows = all<RunRow>(
    db,
    'SELECT runs.pk, runs.id, runs.state, runs.session_pk, inputs.state AS input, inputs.reason, inputs.entry_seq FROM runs LEFT JOIN inputs ON inputs.run_pk = runs.pk',
  );
  for (const run of rows) {
    const ends = all<{ state: string }>(
      db,
      `SELECT state FROM feed WHERE kind = 'run' AND ref_pk = ? AND state IN ('ok', 'error', 'timeout', 'aborted')`,
      run.pk,
    );
    if (ends.length !== 1) yield `run ${run.id} has ${ends.length} ends`;
    else if (ends[0]!.state !== run.state) yield `run ${run.id} says ${run.state}, the feed says ${ends[0]!.state}`;
    if (run.input !== 'consumed' && run.input !== 'aborted') yield `run ${run.id} ended with its input ${run.input}`;
    if (run.input === 'aborted' && run.reason === null) yield `run ${run.id} lost its input without a reason`;
    if (
      run.input === 'consumed' &&
      all(db, `SELECT 1 FROM entries WHERE session_pk = ? AND seq = ? AND role = 'user'`, run.session_pk, run.entry_seq).length !== 1
    )
      yield `run ${run.id} has no entry for its input`;
  }
  if (all(db, 'SELECT 1 FROM waits').length > 0) yield 'a wait was never answered';
  if (all(db, 'SELECT 1 FROM offers').length > 0) yield 'a guest has a turn that ended';
  if (all(db, 'SELECT 1 FROM runs WHERE ready_pos IS NOT NULL').length > 0) yield 'an ended run can still be claimed';
}

/** What was acknowledged is there; what was sent again is there once. */
function* acknowledged(db: DatabaseSync, logs: Logs): Generator<string> {
  for (const { op, runId } of linesOf<{ op: string; runId: string }>(logs.acked)) {
    if (runId !== '' && all(db, 'SELECT 1 FROM runs WHERE id = ?', runId).length !== 1)
      yield `${op} was acknowledged as run ${runId}, which does not exist`;
  }
  for (const [op, text] of logs.sent) {
    const taken = all(db, `SELECT 1 FROM entries WHERE role = 'user' AND text = ?`, text).length;
    const ended = all(db, `SELECT 1 FROM inputs WHERE state = 'aborted' AND text = ?`, text).length;
    if (taken + ended !== 1) yield `${op} was taken ${taken} times and ended ${ended} times`;
  }
}

/** A run that was said to be stopped has not ended well, whatever died in between. */
function* stops(db: DatabaseSync, logs: Logs): Generator<string> {
  for (const { op, aborted } of linesOf<{ op: string; aborted?: string }>(logs.acked)) {
    if (aborted === undefined) continue;
    const run = followed(db, aborted);
    if (run?.state !== 'aborted' && run?.state !== 'error')
      yield `${op} was told that run ${aborted} is stopped, but it ended ${run?.state}`;
  }
}

interface EndedRun {
  state: string;
  merged_into: number | null;
  reply: string | null;
}

/** A run, or the one that took it in, with its reply. */
function followed(db: DatabaseSync, id: string): EndedRun | undefined {
  const select = `SELECT state, merged_into, (SELECT text FROM entries WHERE entries.session_pk = runs.session_pk AND seq = runs.reply_seq) AS reply FROM runs`;
  let run = all<EndedRun>(db, `${select} WHERE id = ?`, id)[0];
  while (run && run.merged_into !== null) run = all<EndedRun>(db, `${select} WHERE pk = ?`, run.merged_into)[0];
  return run;
}

/** What a call of sessions_send was told is what happened: the run, its end and its reply; and what was refused never began. */
function* told(db: DatabaseSync): Generator<string> {
  const calls = all<{ call: string; result: string | null; began: string | null }>(
    db,
    `SELECT runs.id || '/' || tool_calls.step || '/' || tool_calls.idx AS call, entries.text AS result,
       (SELECT first.id FROM exchanges JOIN exchange_turns ON exchange_pk = exchanges.pk AND exchange_turns.turn = 0 JOIN runs AS first ON first.pk = exchange_turns.run_pk
        WHERE origin_run_pk = tool_calls.run_pk AND origin_step = tool_calls.step AND origin_idx = tool_calls.idx) AS began
     FROM tool_calls JOIN runs ON runs.pk = tool_calls.run_pk
     LEFT JOIN entries ON entries.session_pk = runs.session_pk AND entries.seq = tool_calls.result_seq WHERE tool = 'sessions_send'`,
  );
  for (const { call, result, began } of calls) {
    if (result === null) {
      yield `call ${call} has no result`;
      continue;
    }
    const { runId, status, reply, code } = JSON.parse(result) as { runId?: string; status: string; reply?: string; code?: string };
    if (runId === undefined) {
      // Its run was stopped while it waited; or it was refused, and then nothing began.
      if (status !== 'error' || (code !== undefined && began !== null)) yield `call ${call} was told ${result}, but run ${began} began`;
      continue;
    }
    if (runId !== began) yield `call ${call} was told of run ${runId}, but began ${began}`;
    const run = followed(db, runId);
    const said = (run?.reply ?? '').trim();
    if (!run) yield `call ${call} was told of run ${runId}, which does not exist`;
    else if (status === 'ok' && (run.state !== 'ok' || said !== (reply ?? '').trim()))
      yield `call ${call} was told "${reply}", but run ${runId} ended ${run.state} with "${said}"`;
    else if (status === 'error' && run.state === 'ok') yield `call ${call} was told that run ${runId} failed, but it ended ok`;
  }
}

/** An exchange has exactly the turns that its replies imply, and is announced once or not at all. */
function* exchanges(db: DatabaseSync): Generator<string> {
  for (const exchange of all<ExchangeRow>(
    db,
    `SELECT pk, id, max_turns, end_reason,
       NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.pk = req_session_pk AND current = 1 AND sessions.state = 'live') AS requester_gone
     FROM exchanges`,
  )) {
    const turns = all<{ turn: number; state: string; reply: string | null }>(
      db,
      `SELECT turn, runs.state, (SELECT text FROM entries WHERE entries.session_pk = runs.session_pk AND seq = runs.reply_seq) AS reply
       FROM exchange_turns JOIN runs ON runs.pk = run_pk WHERE exchange_pk = ? ORDER BY turn`,
      exchange.pk,
    );
    const taken = turns.map(({ turn }) => turn).join(',');
    const expected = impliedTurns(turns, exchange.max_turns);
    const implied = expected.join(',');
    const cutShort = /reset or closed/.test(exchange.end_reason ?? '');
    // A requester that is gone has no more turns: the announce takes the place of its next one.
    const skipped = exchange.requester_gone === 1 && taken === [...expected.slice(0, -1), exchange.max_turns + 1].join(',');
    if (!cutShort && !skipped && taken !== implied) yield `exchange ${exchange.id} took turns ${taken}, its replies imply ${implied}`;
    if (exchange.end_reason === null) yield `exchange ${exchange.id} never ended`;
    const announced = all(db, `SELECT 1 FROM deliveries WHERE cause = 'announce' AND cause_pk = ? AND part = 0`, exchange.pk).length;
    if (announced !== (exchange.end_reason === 'announced' ? 1 : 0))
      yield `exchange ${exchange.id} ended "${exchange.end_reason}" with ${announced} announces`;
  }
}

/** Request, then the requester and the target in turn, until one is silent, fails or skips; then the announce. */
function impliedTurns(turns: { turn: number; state: string; reply: string | null }[], maxTurns: number): number[] {
  const expected = [0];
  for (let turn = 0; ; turn++) {
    const said = turns.find((one) => one.turn === turn);
    if (!said) return expected;
    const reply = said.state === 'ok' ? (said.reply ?? '').trim() : '';
    if (turn === 0 && reply === '') return expected;
    if (reply === '' || reply === 'REPLY_SKIP' || turn === maxTurns) return [...expected, maxTurns + 1];
    expected.push(turn + 1);
  }
}

/** A delivery that says it was sent was received once; one that nobody knows of, at most once; any other, never. */
function* deliveries(db: DatabaseSync, received: Map<string, number>): Generator<string> {
  const queued = new Set<string>();
  for (const { id, state } of all<{ id: string; state: string }>(db, 'SELECT id, state FROM deliveries')) {
    queued.add(`/message ${id}`);
    const count = received.get(`/message ${id}`) ?? 0;
    const fine =
      state === 'sent' ? count === 1 : state === 'unknown' ? count <= 1 : count === 0 && (state === 'failed' || state === 'dead');
    if (!fine) yield `delivery ${id} is ${state} and was received ${count} times`;
  }
  for (const what of received.keys()) if (what.startsWith('/message') && !queued.has(what)) yield `${what} was received, but never queued`;
  for (const run of all<{ pk: number; id: string }>(
    db,
    `SELECT pk, id FROM runs WHERE state = 'ok' AND deliver = 1 AND reply_seq IS NOT NULL`,
  )) {
    if (all(db, `SELECT 1 FROM deliveries WHERE cause = 'reply' AND cause_pk = ? AND part = 0`, run.pk).length !== 1)
      yield `the reply of run ${run.id} was never queued for delivery`;
  }
}

/** No answer that was stored is asked for again, every stored one was asked for, and one start asks for each once. */
function* modelCalls(db: DatabaseSync, { asked, prefix }: Logs): Generator<string> {
  if (!asked) return;
  const seen = new Map<string, number>();
  for (const { path, op, step, refused } of linesOf<{ path: string; op: string; step: number; refused: boolean }>(asked.log)) {
    if (!path.startsWith(`${prefix}/`)) continue;
    const start = Number(path.slice(prefix.length + 1).split('/')[0]);
    const what = `step ${step} of ${op}`;
    const before = asked.stored.slice(0, start).some((steps) => steps.includes(`${op} ${step}`));
    if (before) yield `the model was asked for ${what} again after it was stored`;
    if (refused) continue;
    const times = (seen.get(`${start} ${op} ${step}`) ?? 0) + 1;
    seen.set(`${start} ${op} ${step}`, times);
    if (times > 1) yield `the model was asked for ${what} ${times} times by one gateway`;
  }
  const answered = new Set([...seen.keys()].map((one) => one.slice(one.indexOf(' ') + 1)));
  for (const step of stepsIn(db)) if (!answered.has(step)) yield `the store has ${step}, which no model was asked for`;
}

/** A tool that may act once acted once if it says so, and at most once if nobody knows. */
function* actions(db: DatabaseSync, received: Map<string, number>): Generator<string> {
  const calls = all<{ run: string; step: number; idx: number; result: string | null }>(
    db,
    `SELECT runs.id AS run, tool_calls.step, idx, entries.text AS result FROM tool_calls JOIN runs ON runs.pk = tool_calls.run_pk
     LEFT JOIN entries ON entries.session_pk = runs.session_pk AND entries.seq = tool_calls.result_seq WHERE tool = 'act'`,
  );
  for (const { run, step, idx, result } of calls) {
    const count = received.get(`/act ${run}/${step}/${idx}`) ?? 0;
    if (result === 'done' ? count !== 1 : count > 1) yield `call ${run}/${step}/${idx} says ${result} and acted ${count} times`;
  }
}
