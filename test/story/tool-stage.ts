// A stage whose scripted model makes the tool calls a test asks for, each by a real run; answers are read from the transcript.
import { Script } from '../../src/runtimes/scripted/scripted.ts';
import type { Value } from '../../src/store/contract.ts';
import type { EntryRow } from '../../src/store/rows.ts';
import type { HandClock, StageClock } from '../clock.ts';
import { Stage } from './stage.ts';

export type Refused = { status: 'error'; code: string; error: string };

/** The first rule of the script is a caller's turn. Each call of a test puts its own steps there. */
export const callScript = [{ when: '^\\ncall$', steps: [{ say: 'nothing to do' }] }, { steps: [{ say: 're: {{input}}' }] }];

export class ToolStage<C extends StageClock = HandClock> extends Stage<C> {
  /** Who calls, unless a test says otherwise. */
  readonly caller: string;
  private runs = 0;

  constructor(clock: C, caller: string) {
    super(clock);
    this.caller = caller;
  }

  async sql(sql: string, ...params: Value[]): Promise<void> {
    await this.gateway.store.write(
      {
        name: 'test',
        *body(t) {
          yield* t.run(sql, ...params);
        },
      },
      {},
    );
  }

  /** An input into a session, opened if need be; resolves when its turn is over. */
  async say(key: string, text: string, more: { taint?: number; kind?: string; label?: string } = {}) {
    const { taint = 0, kind = 'other', label } = more;
    const runId = `run${this.runs++}`;
    await this.gateway.engine.accept({
      sessionKey: key,
      open: { id: `id of ${key}`, agent: key.split(':')[1]!, kind, label, user: 'loopback:you' },
      runId,
      text,
      provenance: { kind: 'user' },
      principal: 'you',
      taint,
      mode: 'followup',
      class: 'main',
      deliver: false,
      now: this.clock.now(),
    });
    return this.gateway.engine.wait(runId, 3_600_000);
  }

  /** The session calls tools, all in one step; resolves with their results in the order of the calls. */
  async calls(calls: { tool: string; args?: Record<string, unknown> }[], from = this.caller): Promise<EntryRow[]> {
    const steps = Script.parse([{ steps: [{ calls }, { say: 'done' }] }])[0]!.steps;
    this.script[0]!.steps.splice(0, Infinity, ...steps);
    const view = await this.say(from, 'call');
    if (view.state !== 'ok' || view.reply !== 'done') throw new Error(`the run of the calls did not go on: ${JSON.stringify(view)}`);
    return this.rows<EntryRow>(
      `SELECT entries.* FROM entries JOIN runs ON runs.pk = run_pk WHERE role = 'toolResult' AND runs.id = ? ORDER BY CAST(substr(body ->> 'toolCallId', 3) AS INTEGER)`,
      view.runId,
    );
  }

  async call<T = Refused>(tool: string, args: Record<string, unknown> = {}, from = this.caller): Promise<T> {
    const [row] = await this.calls([{ tool, args }], from);
    return JSON.parse(row!.text) as T;
  }
}
