// The schema, as numbered steps that are each applied once. A database from a newer version is refused, never changed.

/** Marks a file as ours ("ilan"), so that another program's database is not taken for one. */
export const applicationId = 0x696c_616e;

// Ids: `pk` inside (never used again, so that nothing left over can point to something new), random public ids outside. Levels are 0 PUBLIC … 3 RESTRICTED. Times are milliseconds.
// Text lives in `entries` (in `inputs` until consumed, in `deliveries` until settled); everything else points to it.
// Written or kept before anything reads them: `policy_rev` (decisions cached per revision), `archive_at` (children archived after a while),
// `system_sent` (a field of every listed session, set by runtimes that send a system prompt) and `meta` (facts about the store itself).
export const migrations: string[] = [
  `
  CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;

  CREATE TABLE instances (
    pk INTEGER PRIMARY KEY, boot_id TEXT NOT NULL UNIQUE, host TEXT NOT NULL, pid INTEGER NOT NULL, started_at INTEGER NOT NULL
  ) STRICT;

  -- One row is one life of a key. A list merges at most four level streams, each newest first. A tree hangs from a key, whichever life it is in.
  CREATE TABLE sessions (
    pk INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, key TEXT NOT NULL, life INTEGER NOT NULL, current INTEGER NOT NULL,
    agent TEXT NOT NULL, kind TEXT NOT NULL, label TEXT, user TEXT, parent_key TEXT, depth INTEGER NOT NULL DEFAULT 0,
    next_seq INTEGER NOT NULL DEFAULT 1, taint INTEGER NOT NULL DEFAULT 0, exist_taint INTEGER NOT NULL DEFAULT 0,
    level INTEGER NOT NULL DEFAULT 0, policy_rev INTEGER NOT NULL DEFAULT 1, state TEXT NOT NULL DEFAULT 'live',
    created_at INTEGER NOT NULL, last_pos INTEGER NOT NULL DEFAULT 0, last_at INTEGER NOT NULL, total_tokens INTEGER NOT NULL DEFAULT 0,
    aborted_last INTEGER NOT NULL DEFAULT 0, system_sent INTEGER NOT NULL DEFAULT 0, archive_at INTEGER,
    settings TEXT NOT NULL DEFAULT '{}', delivery TEXT
  ) STRICT;
  CREATE UNIQUE INDEX sessions_key ON sessions (key) WHERE current = 1;
  CREATE UNIQUE INDEX sessions_label ON sessions (agent, label) WHERE current = 1 AND label IS NOT NULL;
  CREATE INDEX sessions_by_label ON sessions (label) WHERE current = 1 AND label IS NOT NULL;
  CREATE INDEX sessions_lives ON sessions (key, life);
  CREATE INDEX sessions_all ON sessions (level, last_pos) WHERE current = 1 AND state = 'live';
  CREATE INDEX sessions_agent ON sessions (agent, level, last_pos) WHERE current = 1 AND state = 'live';
  CREATE INDEX sessions_kind ON sessions (kind, level, last_pos) WHERE current = 1 AND state = 'live';
  CREATE INDEX sessions_agent_kind ON sessions (agent, kind, level, last_pos) WHERE current = 1 AND state = 'live';
  CREATE INDEX sessions_children ON sessions (parent_key, level, last_pos) WHERE current = 1 AND state = 'live' AND parent_key IS NOT NULL;
  CREATE INDEX sessions_children_kind ON sessions (parent_key, kind, level, last_pos) WHERE current = 1 AND state = 'live' AND parent_key IS NOT NULL;
  CREATE INDEX sessions_deleted ON sessions (pk) WHERE state = 'deleted';
  CREATE INDEX sessions_archive ON sessions (archive_at) WHERE archive_at IS NOT NULL;

  -- Sessions that are gone, whose words are still in the search index.
  CREATE TABLE forgets (session_pk INTEGER PRIMARY KEY) STRICT;

  CREATE TABLE entries (
    pk INTEGER PRIMARY KEY AUTOINCREMENT, session_pk INTEGER NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL UNIQUE, run_pk INTEGER, step INTEGER,
    role TEXT NOT NULL, taint INTEGER NOT NULL, provenance TEXT, text TEXT NOT NULL, body TEXT, at INTEGER NOT NULL
  ) STRICT;
  CREATE UNIQUE INDEX entries_seq ON entries (session_pk, seq);

  CREATE TABLE inputs (
    pk INTEGER PRIMARY KEY AUTOINCREMENT, session_pk INTEGER NOT NULL, run_pk INTEGER NOT NULL, mode TEXT NOT NULL, principal TEXT NOT NULL,
    taint INTEGER NOT NULL, provenance TEXT NOT NULL, merge_key TEXT NOT NULL, text TEXT NOT NULL, context TEXT,
    state TEXT NOT NULL DEFAULT 'queued', reason TEXT, entry_seq INTEGER, at INTEGER NOT NULL
  ) STRICT;
  CREATE INDEX inputs_session ON inputs (session_pk);
  CREATE INDEX inputs_run ON inputs (run_pk);

  -- The lane is the key: at most one run of it is active (I3), and only its head can be claimed (ready_pos).
  CREATE TABLE runs (
    pk INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, session_pk INTEGER NOT NULL, lane TEXT NOT NULL, class TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'queued', ready_pos INTEGER, not_before INTEGER, owner INTEGER, epoch INTEGER NOT NULL DEFAULT 0,
    crashes INTEGER NOT NULL DEFAULT 0, step INTEGER NOT NULL DEFAULT 0, cause TEXT NOT NULL, cause_pk INTEGER, deliver INTEGER NOT NULL,
    destination TEXT,
    root_pk INTEGER, hop INTEGER NOT NULL DEFAULT 0, budget_ms INTEGER NOT NULL DEFAULT 0, used_ms INTEGER NOT NULL DEFAULT 0,
    abort_requested TEXT, merged_into INTEGER, reply_seq INTEGER, error_code TEXT, error TEXT, tokens INTEGER NOT NULL DEFAULT 0,
    queued_at INTEGER NOT NULL, started_at INTEGER, ended_at INTEGER
  ) STRICT;
  CREATE UNIQUE INDEX runs_active ON runs (lane) WHERE state IN ('running', 'waiting');
  CREATE INDEX runs_ready ON runs (class, ready_pos) WHERE ready_pos IS NOT NULL;
  CREATE INDEX runs_suspect ON runs (class, ready_pos) WHERE ready_pos IS NOT NULL AND crashes >= 2;
  CREATE INDEX runs_not_before ON runs (not_before) WHERE not_before IS NOT NULL AND ready_pos IS NOT NULL;
  CREATE INDEX runs_queue ON runs (lane, pk) WHERE state = 'queued';
  CREATE INDEX runs_owned ON runs (owner) WHERE state = 'running';
  CREATE INDEX runs_session ON runs (session_pk, pk);
  CREATE INDEX runs_ended ON runs (ended_at) WHERE ended_at IS NOT NULL;

  -- What was queued in a lane up to that run ends with the reason, a few at a time; none of it is started any more.
  CREATE TABLE stops (
    lane TEXT NOT NULL, upto INTEGER NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (lane, upto)
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE tool_calls (
    run_pk INTEGER NOT NULL, step INTEGER NOT NULL, idx INTEGER NOT NULL, provider_id TEXT NOT NULL, tool TEXT NOT NULL, args TEXT NOT NULL,
    effect TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'planned', result_seq INTEGER, PRIMARY KEY (run_pk, step, idx)
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE waits (
    pk INTEGER PRIMARY KEY, run_pk INTEGER NOT NULL, step INTEGER NOT NULL, idx INTEGER NOT NULL, lane TEXT NOT NULL,
    target_run_pk INTEGER NOT NULL, target_lane TEXT NOT NULL, due_at INTEGER NOT NULL, UNIQUE (run_pk, step, idx)
  ) STRICT;
  CREATE INDEX waits_target ON waits (target_run_pk);
  CREATE INDEX waits_lane ON waits (lane);
  CREATE INDEX waits_due ON waits (due_at);

  -- Rows live as long as their run.
  CREATE TABLE idempotency (
    principal TEXT NOT NULL, method TEXT NOT NULL, key TEXT NOT NULL, hash TEXT NOT NULL, run_pk INTEGER, at INTEGER NOT NULL,
    PRIMARY KEY (principal, method, key)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX idempotency_run ON idempotency (run_pk);

  CREATE TABLE exchanges (
    pk INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, req_session_pk INTEGER, tgt_session_pk INTEGER NOT NULL,
    origin_run_pk INTEGER, origin_step INTEGER, origin_idx INTEGER, state TEXT NOT NULL, version INTEGER NOT NULL DEFAULT 0,
    turn INTEGER NOT NULL DEFAULT 0, max_turns INTEGER NOT NULL, hop INTEGER NOT NULL, first_seq INTEGER,
    last_session_pk INTEGER, last_seq INTEGER, end_reason TEXT, due_at INTEGER, at INTEGER NOT NULL,
    UNIQUE (origin_run_pk, origin_step, origin_idx)
  ) STRICT;
  CREATE INDEX exchanges_pair ON exchanges (req_session_pk, tgt_session_pk, at);
  CREATE INDEX exchanges_open ON exchanges (tgt_session_pk) WHERE end_reason IS NULL;
  CREATE INDEX exchanges_target ON exchanges (tgt_session_pk);
  CREATE INDEX exchanges_ended ON exchanges (at) WHERE end_reason IS NOT NULL;
  CREATE INDEX exchanges_due ON exchanges (due_at) WHERE due_at IS NOT NULL;
  CREATE TABLE exchange_turns (
    exchange_pk INTEGER NOT NULL, turn INTEGER NOT NULL, run_pk INTEGER NOT NULL UNIQUE, PRIMARY KEY (exchange_pk, turn)
  ) STRICT, WITHOUT ROWID;

  -- First in, first out: of all that is open for a destination one is its head, and only a head is sent.
  CREATE TABLE deliveries (
    pk INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, session_pk INTEGER NOT NULL, cause TEXT NOT NULL, cause_pk INTEGER NOT NULL,
    part INTEGER NOT NULL, dest_key TEXT NOT NULL, channel TEXT NOT NULL, account TEXT, recipient TEXT NOT NULL, thread TEXT,
    taint INTEGER NOT NULL, text TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'pending', head INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0, due_at INTEGER NOT NULL, first_at INTEGER NOT NULL, platform_id TEXT, error TEXT, UNIQUE (cause, cause_pk, part)
  ) STRICT;
  CREATE INDEX deliveries_open ON deliveries (dest_key, pk) WHERE state IN ('pending', 'sending');
  CREATE INDEX deliveries_due ON deliveries (due_at) WHERE state = 'pending' AND head = 1;
  CREATE INDEX deliveries_settled ON deliveries (first_at) WHERE state IN ('sent', 'failed', 'dead');
  CREATE INDEX deliveries_session ON deliveries (session_pk);
  CREATE INDEX deliveries_state ON deliveries (state, pk);

  -- The order of everything that happened; a cursor is a position in it. What a later moment may change is kept in detail.
  CREATE TABLE feed (
    pos INTEGER PRIMARY KEY AUTOINCREMENT, session_pk INTEGER NOT NULL, kind TEXT NOT NULL, ref_pk INTEGER NOT NULL, state TEXT,
    detail TEXT, level INTEGER NOT NULL, at INTEGER NOT NULL
  ) STRICT;
  CREATE INDEX feed_session ON feed (session_pk, pos);
  `,
  `
  -- Who may connect. Only the hash of a secret is kept.
  CREATE TABLE tokens (
    id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, hash TEXT NOT NULL, kind TEXT NOT NULL, scopes TEXT NOT NULL, level INTEGER NOT NULL,
    session_key TEXT, created_at INTEGER NOT NULL, last_used_at INTEGER, expires_at INTEGER
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX tokens_expired ON tokens (expires_at) WHERE expires_at IS NOT NULL;
  -- What real models read, said and cost.
  ALTER TABLE runs ADD COLUMN model TEXT;
  ALTER TABLE runs ADD COLUMN input_tokens INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE runs ADD COLUMN output_tokens INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE runs ADD COLUMN cost_micros INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE sessions ADD COLUMN input_tokens INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE sessions ADD COLUMN output_tokens INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE sessions ADD COLUMN cost_micros INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE sessions ADD COLUMN compact_seq INTEGER;
  -- Of a message that an operator sent: its text is gone once it is settled, and a retry must be told from another message.
  ALTER TABLE deliveries ADD COLUMN hash TEXT;
  CREATE INDEX sessions_archived ON sessions (last_pos) WHERE state = 'archived' AND current = 1;
  `,
  `
  -- Turns that wait for a guest. Open: nobody has it. Taken: somebody does, until due_at. Stopped: it ended otherwise, and whoever had it is not told yet.
  CREATE TABLE offers (
    run_pk INTEGER PRIMARY KEY, lane TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'open', attempt INTEGER NOT NULL DEFAULT 0,
    taken_at INTEGER, due_at INTEGER
  ) STRICT;
  CREATE INDEX offers_lane ON offers (lane, state);
  CREATE INDEX offers_due ON offers (due_at) WHERE due_at IS NOT NULL;
  `,
  `
  -- \`user\` is a word of SQL: elsewhere it silently means the login of the database.
  ALTER TABLE sessions RENAME COLUMN user TO opened_by;
  -- An input names the flow it belongs to, and the run that consumed it, so that a run which took in several inputs ends all their flows.
  ALTER TABLE inputs ADD COLUMN flow TEXT;
  ALTER TABLE inputs ADD COLUMN flow_pk INTEGER;
  ALTER TABLE inputs ADD COLUMN taken_by INTEGER;
  UPDATE inputs SET flow = 'exchange', flow_pk = (SELECT cause_pk FROM runs WHERE runs.pk = inputs.run_pk)
    WHERE run_pk IN (SELECT pk FROM runs WHERE cause = 'exchange');
  UPDATE inputs SET taken_by = coalesce((SELECT merged_into FROM runs WHERE runs.pk = inputs.run_pk), run_pk) WHERE state = 'consumed';
  CREATE INDEX inputs_flow ON inputs (taken_by) WHERE flow IS NOT NULL;
  ALTER TABLE runs DROP COLUMN cause;
  ALTER TABLE runs DROP COLUMN cause_pk;
  -- Why a waiting run waits: calls (rows in waits), answer (an offer to a guest), slot (handed back at a stop, or recovered).
  ALTER TABLE runs ADD COLUMN parked_on TEXT;
  UPDATE runs SET parked_on = CASE WHEN ready_pos IS NOT NULL THEN 'slot'
    WHEN EXISTS (SELECT 1 FROM offers WHERE offers.run_pk = runs.pk) THEN 'answer' ELSE 'calls' END WHERE state = 'waiting';
  -- What a call waits for, by kind; a call may wait for several.
  CREATE TABLE waits_4 (
    pk INTEGER PRIMARY KEY AUTOINCREMENT, run_pk INTEGER NOT NULL, step INTEGER NOT NULL, idx INTEGER NOT NULL, lane TEXT NOT NULL,
    target_kind TEXT NOT NULL, target_pk INTEGER NOT NULL, target_lane TEXT NOT NULL, due_at INTEGER NOT NULL, answer TEXT,
    UNIQUE (run_pk, step, idx, target_kind, target_pk)
  ) STRICT;
  INSERT INTO waits_4 (run_pk, step, idx, lane, target_kind, target_pk, target_lane, due_at)
    SELECT run_pk, step, idx, lane, 'run', target_run_pk, target_lane, due_at FROM waits ORDER BY pk;
  DROP TABLE waits;
  ALTER TABLE waits_4 RENAME TO waits;
  CREATE INDEX waits_target ON waits (target_kind, target_pk) WHERE answer IS NULL;
  CREATE INDEX waits_lane ON waits (lane) WHERE answer IS NULL;
  CREATE INDEX waits_due ON waits (due_at) WHERE answer IS NULL;
  -- The gateway that marked a delivery as being sent.
  ALTER TABLE deliveries ADD COLUMN owner INTEGER;
  -- The last position that was given; a store of another kind has a row of this name.
  CREATE VIEW feed_head AS SELECT seq AS pos FROM sqlite_sequence WHERE name = 'feed';
  `,
  `
  -- Keys.
  -- The shared chat of session.scope "global" was stored as 'global'. It is its agent's main session, or a named one where that exists.
  UPDATE runs SET lane = coalesce((SELECT 'agent:' || shared.agent || CASE WHEN EXISTS (SELECT 1 FROM sessions AS main WHERE main.key = 'agent:' || shared.agent || ':main')
      THEN ':shared-chat' ELSE ':main' END FROM sessions AS shared WHERE shared.key = 'global' AND shared.current = 1), lane) WHERE lane = 'global';
  UPDATE waits SET lane = coalesce((SELECT 'agent:' || shared.agent || CASE WHEN EXISTS (SELECT 1 FROM sessions AS main WHERE main.key = 'agent:' || shared.agent || ':main')
      THEN ':shared-chat' ELSE ':main' END FROM sessions AS shared WHERE shared.key = 'global' AND shared.current = 1), lane) WHERE lane = 'global';
  UPDATE waits SET target_lane = coalesce((SELECT 'agent:' || shared.agent || CASE WHEN EXISTS (SELECT 1 FROM sessions AS main WHERE main.key = 'agent:' || shared.agent || ':main')
      THEN ':shared-chat' ELSE ':main' END FROM sessions AS shared WHERE shared.key = 'global' AND shared.current = 1), target_lane) WHERE target_lane = 'global';
  UPDATE stops SET lane = coalesce((SELECT 'agent:' || shared.agent || CASE WHEN EXISTS (SELECT 1 FROM sessions AS main WHERE main.key = 'agent:' || shared.agent || ':main')
      THEN ':shared-chat' ELSE ':main' END FROM sessions AS shared WHERE shared.key = 'global' AND shared.current = 1), lane) WHERE lane = 'global';
  UPDATE offers SET lane = coalesce((SELECT 'agent:' || shared.agent || CASE WHEN EXISTS (SELECT 1 FROM sessions AS main WHERE main.key = 'agent:' || shared.agent || ':main')
      THEN ':shared-chat' ELSE ':main' END FROM sessions AS shared WHERE shared.key = 'global' AND shared.current = 1), lane) WHERE lane = 'global';
  UPDATE tokens SET session_key = coalesce((SELECT 'agent:' || shared.agent || CASE WHEN EXISTS (SELECT 1 FROM sessions AS main WHERE main.key = 'agent:' || shared.agent || ':main')
      THEN ':shared-chat' ELSE ':main' END FROM sessions AS shared WHERE shared.key = 'global' AND shared.current = 1), session_key) WHERE session_key = 'global';
  UPDATE sessions SET parent_key = coalesce((SELECT 'agent:' || shared.agent || CASE WHEN EXISTS (SELECT 1 FROM sessions AS main WHERE main.key = 'agent:' || shared.agent || ':main')
      THEN ':shared-chat' ELSE ':main' END FROM sessions AS shared WHERE shared.key = 'global' AND shared.current = 1), parent_key) WHERE parent_key = 'global';
  UPDATE entries SET provenance = replace(provenance, '"sourceSession":"global"', '"sourceSession":"' || (SELECT 'agent:' || shared.agent || CASE WHEN EXISTS (SELECT 1 FROM sessions AS main WHERE main.key = 'agent:' || shared.agent || ':main')
      THEN ':shared-chat' ELSE ':main' END FROM sessions AS shared WHERE shared.key = 'global' AND shared.current = 1) || '"')
    WHERE provenance LIKE '%"sourceSession":"global"%' AND EXISTS (SELECT 1 FROM sessions WHERE key = 'global' AND current = 1);
  UPDATE inputs SET provenance = replace(provenance, '"sourceSession":"global"', '"sourceSession":"' || (SELECT 'agent:' || shared.agent || CASE WHEN EXISTS (SELECT 1 FROM sessions AS main WHERE main.key = 'agent:' || shared.agent || ':main')
      THEN ':shared-chat' ELSE ':main' END FROM sessions AS shared WHERE shared.key = 'global' AND shared.current = 1) || '"')
    WHERE provenance LIKE '%"sourceSession":"global"%' AND EXISTS (SELECT 1 FROM sessions WHERE key = 'global' AND current = 1);
  UPDATE sessions SET key = (SELECT 'agent:' || shared.agent || CASE WHEN EXISTS (SELECT 1 FROM sessions AS main WHERE main.key = 'agent:' || shared.agent || ':main')
      THEN ':shared-chat' ELSE ':main' END FROM sessions AS shared WHERE shared.key = 'global' AND shared.current = 1) WHERE key = 'global' AND EXISTS (SELECT 1 FROM sessions AS present WHERE present.key = 'global' AND present.current = 1);

  -- Levels and tokens.
  -- The ceiling of a session, from the level of its creator. An operator's token gives its level; one that is gone gives the session's own.
  ALTER TABLE sessions ADD COLUMN clearance INTEGER NOT NULL DEFAULT 3;
  UPDATE sessions SET clearance = coalesce((SELECT tokens.level FROM tokens WHERE 'operator:' || tokens.name = opened_by), sessions.level)
    WHERE opened_by LIKE 'operator:%' AND opened_by NOT IN ('operator:cli', 'operator:environment');
  -- A token that is bound to a session has the ceiling of its creator, who is known only by the session. Where operators differ in level
  -- and the session does not name one, the token reaches no further than the session is now.
  UPDATE tokens SET level = coalesce((SELECT CASE WHEN opened_by LIKE 'operator:%'
      OR NOT EXISTS (SELECT 1 FROM tokens AS other WHERE other.scopes LIKE '%admin%' AND other.level < 3) THEN sessions.clearance ELSE sessions.level END
    FROM sessions WHERE sessions.key = tokens.session_key AND sessions.current = 1), 0) WHERE kind = 'session';
  -- A directory of files has a level of its own. Until now a file had the level of its session, which a reset lowered.
  CREATE TABLE workspaces (
    name TEXT PRIMARY KEY, level INTEGER NOT NULL, bytes INTEGER NOT NULL, files INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  INSERT INTO workspaces (name, level, bytes, files)
    SELECT 'agent:' || agent, max(level), 0, 0 FROM sessions WHERE kind = 'main' GROUP BY agent HAVING max(level) > 0;

  -- Sessions and their lives.
  ALTER TABLE sessions ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
  CREATE INDEX sessions_pinned ON sessions (last_pos) WHERE pinned = 1 AND current = 1;
  -- An id is found whatever its case.
  CREATE INDEX sessions_folded_id ON sessions (lower(id));
  -- The key from its end to its beginning. Keys that are similar to one that does not exist are near it in one of the two orders.
  ALTER TABLE sessions ADD COLUMN mirror TEXT NOT NULL DEFAULT '';
  UPDATE sessions SET mirror = (
    WITH RECURSIVE read (place, text) AS (
      SELECT length(sessions.key), substr(sessions.key, 1, 0) UNION ALL SELECT place - 1, text || substr(sessions.key, place, 1) FROM read WHERE place > 0
    ) SELECT text FROM read WHERE place = 0
  );
  CREATE INDEX sessions_similar ON sessions (agent, level, key) WHERE current = 1 AND state = 'live';
  CREATE INDEX sessions_similar_end ON sessions (agent, level, mirror) WHERE current = 1 AND state = 'live';
  -- Files of a purged session are found by its id.
  ALTER TABLE forgets ADD COLUMN id TEXT;
  -- A deletion takes every life of its key; earlier versions left the earlier ones behind.
  UPDATE sessions SET state = 'deleted', label = NULL WHERE current = 0 AND state <> 'deleted'
    AND NOT EXISTS (SELECT 1 FROM sessions AS present WHERE present.key = sessions.key AND present.current = 1);

  -- Runs, deliveries and faults.
  -- The kind of chat that a delivery goes to, for the send policy at each attempt.
  ALTER TABLE deliveries ADD COLUMN chat_type TEXT;
  -- Messages that an operator wrote into a transcript while calls of a turn were open. They follow the last result; the run counts them.
  CREATE TABLE injections (
    pk INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, run_pk INTEGER NOT NULL, session_pk INTEGER NOT NULL, text TEXT NOT NULL
  ) STRICT;
  CREATE INDEX injections_run ON injections (run_pk, pk);
  ALTER TABLE runs ADD COLUMN injections INTEGER NOT NULL DEFAULT 0;

  -- Operators: read marks.
  -- How far an operator has read a session.
  CREATE TABLE read_marks (
    principal TEXT NOT NULL, session_pk INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (principal, session_pk)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX read_marks_session ON read_marks (session_pk);

  `,
];
