// The contract of a flow: work that spans several runs. The transaction that ends one of its runs advances it. An input names its flow.
import { reasonOf } from '../errors.ts';
import type { World } from '../rules/decide.ts';
import type { Body, Reading } from '../store/contract.ts';
import type { RunRow, SessionRow } from '../store/rows.ts';
import * as inputs from '../store/tables/inputs.ts';
import type { Tx } from './feed.ts';

/** The dependencies of command bodies besides rows. A body calls `current()` once, first. */
export interface Kernel {
  world: World;
  flows: Flows;
}
export type Current = () => Kernel;
export type Flows = ReadonlyMap<string, Flow>;

/** The end of a run that belongs to a flow. */
export interface FlowEnd {
  run: RunRow;
  session: SessionRow;
  /** Empty unless the run ended well. */
  reply: string;
  now: number;
}

export interface Flow<State = unknown, Step = unknown> {
  kind: string;
  /** The flow's state and what has just happened to it; undefined when it has ended. */
  load(t: Tx, kernel: Kernel, pk: number, end: FlowEnd): Body<State | undefined>;
  /** The reducer: pure. */
  next(state: State): Step;
  /** Writes the step as rows: the next turn, a delivery, or the end. */
  apply(t: Tx, kernel: Kernel, state: State, step: Step): Body<void>;
  /** Ends the flow with a reason, after its step failed and was rolled back. */
  fail(t: Tx, pk: number, end: FlowEnd, why: string): Body<void>;
  /** Handles some flows whose due time has passed. Returns how many; call again until it returns 0. */
  sweep(t: Tx, kernel: Kernel, now: number): Body<number>;
  /** The wall clock was set: due times move along. */
  moveDue(t: Tx, byMs: number): Body<void>;
  /** Names the open flow of this kind in a session, if any, for error messages. */
  openFor(t: Reading, session: SessionRow): Body<string | undefined>;
}

/** Forgets the types of a flow's state, which only its own functions see. */
export const asFlow = <State, Step>(flow: Flow<State, Step>): Flow => flow;

/** Advances every flow whose input the run consumed. Each in its own savepoint: if it throws, the run still ends. */
export function* advanceFlows(t: Tx, kernel: Kernel, end: FlowEnd): Body<void> {
  for (const { flow: kind, flow_pk: pk } of yield* inputs.flowsOf(t, end.run.pk)) {
    const flow = kernel.flows.get(kind);
    if (!flow) continue;
    const advanced = yield* t.attempt(advance(t, kernel, flow, pk, end));
    if (!advanced.ok) yield* flow.fail(t, pk, end, reasonOf(advanced.error));
  }
}

function* advance(t: Tx, kernel: Kernel, flow: Flow, pk: number, end: FlowEnd): Body<void> {
  const state = yield* flow.load(t, kernel, pk, end);
  if (state !== undefined) yield* flow.apply(t, kernel, state, flow.next(state));
}

export function* openFlow(t: Reading, flows: Flows, session: SessionRow): Body<string | undefined> {
  for (const flow of flows.values()) {
    const open = yield* flow.openFor(t, session);
    if (open !== undefined) return open;
  }
  return undefined;
}
