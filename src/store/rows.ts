// Rows as the store keeps them.
import type { DeliveryState } from '../protocol/delivery.ts';
import type { ChatTypeWord } from '../protocol/labels.ts';
import type { RunClass, RunState, QueueMode } from '../protocol/run.ts';

export interface SessionRow {
  pk: number;
  id: string;
  key: string;
  life: number;
  current: number;
  agent: string;
  kind: string;
  label: string | null;
  /** The user of this life: the principal that opened it, or the sender of its first message. */
  opened_by: string | null;
  /** The key that spawned it, in whichever life. */
  parent_key: string | null;
  depth: number;
  next_seq: number;
  taint: number;
  exist_taint: number;
  level: number;
  /** The highest level that it may rise to. */
  clearance: number;
  policy_rev: number;
  state: 'live' | 'archived' | 'deleted';
  created_at: number;
  last_pos: number;
  last_at: number;
  /** In use: how much the model last read and said. */
  total_tokens: number;
  input_tokens: number;
  output_tokens: number;
  cost_micros: number;
  /** The entry that sums up what was before it. */
  compact_seq: number | null;
  aborted_last: number;
  system_sent: number;
  archive_at: number | null;
  /** 1 if operators want it first in their lists. */
  pinned: number;
  /** Its key from the end to the beginning. */
  mirror: string;
  settings: string;
  delivery: string | null;
}

/** `calls`: answers to its tool calls; `answer`: a guest's reply; `harness`: an outside process; `slot`: nothing but a free slot. */
export type ParkedOn = 'calls' | 'answer' | 'harness' | 'slot';

export interface RunRow {
  pk: number;
  id: string;
  session_pk: number;
  lane: string;
  class: RunClass;
  state: RunState;
  ready_pos: number | null;
  not_before: number | null;
  owner: number | null;
  epoch: number;
  crashes: number;
  step: number;
  deliver: number;
  destination: string | null;
  root_pk: number | null;
  hop: number;
  budget_ms: number;
  used_ms: number;
  abort_requested: string | null;
  merged_into: number | null;
  reply_seq: number | null;
  error_code: string | null;
  error: string | null;
  tokens: number;
  model: string | null;
  input_tokens: number;
  output_tokens: number;
  cost_micros: number;
  queued_at: number;
  started_at: number | null;
  ended_at: number | null;
  /** Why a waiting run waits. */
  parked_on: ParkedOn | null;
  /** How many messages of operators wait for the results of its open calls. */
  injections: number;
}

/** A message that an operator wrote into a transcript while calls were open. */
export interface InjectionRow {
  pk: number;
  id: string;
  run_pk: number;
  session_pk: number;
  text: string;
}

export interface InputRow {
  pk: number;
  session_pk: number;
  run_pk: number;
  mode: QueueMode;
  principal: string;
  taint: number;
  provenance: string;
  merge_key: string;
  text: string;
  context: string | null;
  state: 'queued' | 'consumed' | 'aborted';
  reason: string | null;
  entry_seq: number | null;
  at: number;
  /** The flow that this input belongs to, by kind and key. */
  flow: string | null;
  flow_pk: number | null;
  /** The run that consumed it. */
  taken_by: number | null;
}

export interface EntryRow {
  pk: number;
  session_pk: number;
  seq: number;
  id: string;
  run_pk: number | null;
  step: number | null;
  role: 'user' | 'assistant' | 'toolResult';
  taint: number;
  provenance: string | null;
  text: string;
  body: string | null;
  at: number;
}

export interface CallRow {
  run_pk: number;
  step: number;
  idx: number;
  provider_id: string;
  tool: string;
  args: string;
  effect: 'pure' | 'keyed' | 'once';
  state: 'planned' | 'started' | 'waiting' | 'done';
  result_seq: number | null;
}

export interface StopRow {
  lane: string;
  upto: number;
  reason: string;
}

export interface WaitRow {
  pk: number;
  run_pk: number;
  step: number;
  idx: number;
  lane: string;
  target_kind: 'run';
  target_pk: number;
  target_lane: string;
  due_at: number;
  /** The answer, kept until the call's other waits are answered too. */
  answer: string | null;
}

/** A turn that waits for a guest to take and answer it. */
export interface OfferRow {
  run_pk: number;
  lane: string;
  state: 'open' | 'taken' | 'stopped';
  /** How often it was taken; part of its name, so that an answer says to which offer it belongs. */
  attempt: number;
  taken_at: number | null;
  /** When it is offered again. */
  due_at: number | null;
}

export interface ExchangeRow {
  pk: number;
  id: string;
  req_session_pk: number | null;
  tgt_session_pk: number;
  origin_run_pk: number | null;
  origin_step: number | null;
  origin_idx: number | null;
  state: string;
  version: number;
  turn: number;
  max_turns: number;
  hop: number;
  first_seq: number | null;
  last_session_pk: number | null;
  last_seq: number | null;
  end_reason: string | null;
  due_at: number | null;
  at: number;
}

export interface DeliveryRow {
  pk: number;
  id: string;
  session_pk: number;
  cause: string;
  cause_pk: number;
  part: number;
  dest_key: string;
  channel: string;
  account: string | null;
  recipient: string;
  thread: string | null;
  /** The kind of chat, if it is known. */
  chat_type: ChatTypeWord | null;
  taint: number;
  text: string;
  state: DeliveryState;
  head: number;
  attempts: number;
  due_at: number;
  first_at: number;
  platform_id: string | null;
  error: string | null;
  hash: string | null;
  /** The gateway that is sending it. */
  owner: number | null;
}
