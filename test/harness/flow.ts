// A flow for tests: it writes down what it was advanced with, and keeps no rows of its own.
import { asFlow, type Flow, type FlowEnd } from '../../src/engine/flow.ts';

/** `applied` and `failed` list what happened, each once: a body that is undone and run again writes at the same place. */
export function noteFlow({ broken = false } = {}): { flow: Flow; applied: string[]; failed: string[] } {
  const applied = new Set<string>();
  const failed = new Set<string>();
  const flow: Flow<{ pk: number; end: FlowEnd }, string> = {
    kind: 'note',
    *load(t, _, pk, end) {
      yield* t.all('SELECT pk FROM exchanges WHERE pk = ? ORDER BY pk', pk);
      return { pk, end };
    },
    next: ({ pk, end }) => `${pk} ${end.run.id} ${end.run.state} ${end.reply}`,
    *apply(t, _, __, step) {
      yield* t.lock();
      if (broken) throw new Error('broken on purpose');
      applied.add(step);
    },
    *fail(t, pk, _, why) {
      yield* t.lock();
      failed.add(`${pk} ${why}`);
    },
    *sweep(t) {
      yield* t.lock();
      return 0;
    },
    *moveDue(t) {
      yield* t.lock();
    },
    *openFor(t) {
      yield* t.all('SELECT pk FROM exchanges WHERE pk = 0 ORDER BY pk');
      return undefined;
    },
  };
  return {
    flow: asFlow(flow),
    get applied() {
      return [...applied];
    },
    get failed() {
      return [...failed];
    },
  };
}
