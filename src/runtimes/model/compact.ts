// A conversation that has grown too long → a summary of its older part, kept as an entry; nothing is deleted.
import { untilAborted } from '../../abort.ts';
import type { PromptMessage, Turn } from '../../engine/runner.ts';
import { InterlaneError } from '../../errors.ts';
import type { Model, StepRequest } from './model.ts';

/** How many messages stay as they are; each further attempt in a turn keeps fewer. */
const kept = [20, 6, 1];

/** Returns false if there is nothing left to summarise. */
export async function summarizeOlder(turn: Turn, model: Model, request: StepRequest, attempt: number): Promise<boolean> {
  if (!model.summarize) return false;
  // If few messages fill the window, fewer stay. A summary of a summary alone is useless.
  const least = request.prompt[0]?.summary ? 2 : 1;
  const cuts = kept.slice(Math.min(attempt, kept.length - 1)).map((keep) => cutAt(request.prompt, keep));
  const cut = cuts.find((at) => at >= least);
  if (cut === undefined) return false;
  // Results are in the order of their calls, not of their seqs, so the smallest seq that stays is the limit.
  const through = Math.min(...request.prompt.slice(cut).map(({ seq }) => seq)) - 1;
  const live = { signal: turn.signal, delta: () => {}, again: () => {} };
  for (let older = request.prompt.slice(0, cut); ; older = older.slice(Math.ceil(older.length / 2))) {
    try {
      const { text, usage } = await untilAborted(turn.signal, model.summarize({ ...request, prompt: older }, live));
      if (text.trim() === '') return false;
      await turn.compact({ text, through, usage });
      return true;
    } catch (thrown) {
      // The older part alone may be too long as well: then its beginning is dropped first.
      if (!(thrown instanceof InterlaneError && thrown.code === 'CONTEXT_OVERFLOW') || older.length < 4) throw thrown;
    }
  }
}

/** Where to cut so that about so many messages stay and each result stays with its call. */
function cutAt(prompt: PromptMessage[], keep: number): number {
  let cut = Math.max(0, prompt.length - keep);
  while (cut > 0 && prompt[cut]?.role === 'toolResult') cut--;
  return cut;
}
