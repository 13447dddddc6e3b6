// A conversation that has grown too long → a summary of its older part, kept as an entry; nothing is deleted.
import { untilAborted } from '../../abort.ts';
import type { PromptMessage, Turn } from '../../engine/runner.ts';
import { InterlaneError } from '../../errors.ts';
import type { Model, StepRequest } from './model.ts';

/** Messages that are kept word for word; each further attempt in a turn keeps fewer. */
const kept = [20, 6, 1];

/** False when there is nothing left to sum up. */
export async function summarizeOlder(turn: Turn, model: Model, request: StepRequest, attempt: number): Promise<boolean> {
  if (!model.summarize) return false;
  // Where few messages fill the window, fewer are kept. A summary of a summary alone says nothing new.
  const least = request.prompt[0]?.summary ? 2 : 1;
  const cuts = kept.slice(Math.min(attempt, kept.length - 1)).map((keep) => cutAt(request.prompt, keep));
  const cut = cuts.find((at) => at >= least);
  if (cut === undefined) return false;
  // Results stand in the order of their calls, not of their seqs: what stays must stay, so the smallest of it decides.
  const through = Math.min(...request.prompt.slice(cut).map(({ seq }) => seq)) - 1;
  const live = { signal: turn.signal, delta: () => {}, again: () => {} };
  for (let older = request.prompt.slice(0, cut); ; older = older.slice(Math.ceil(older.length / 2))) {
    try {
      const { text, usage } = await untilAborted(turn.signal, model.summarize({ ...request, prompt: older }, live));
      if (text.trim() === '') return false;
      await turn.compact({ text, through, usage });
      return true;
    } catch (thrown) {
      // The older part alone may be too long as well: then its beginning is let go of first.
      if (!(thrown instanceof InterlaneError && thrown.code === 'CONTEXT_OVERFLOW') || older.length < 4) throw thrown;
    }
  }
}

/** Where to cut so that about so many messages stay, and no result is parted from its call. */
function cutAt(prompt: PromptMessage[], keep: number): number {
  let cut = Math.max(0, prompt.length - keep);
  while (cut > 0 && prompt[cut]?.role === 'toolResult') cut--;
  return cut;
}
