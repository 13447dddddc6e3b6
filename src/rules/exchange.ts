// The exchange of one sessions_send after its first run: which side speaks next, when it is announced, when it ends. A pure reducer.

export const replySkip = 'REPLY_SKIP';
export const announceSkip = 'ANNOUNCE_SKIP';

export interface ExchangeState {
  phase: 'request' | 'reply' | 'announce';
  /** The reply-back turn that has just ended; 0 while the request is answered. */
  turn: number;
  maxTurns: number;
  /** The requester has not been reset or closed since, and is not the target itself. */
  canReplyBack: boolean;
}

/** How the run of the current phase ended. `mayFlow`: policy, evaluated now, allows this reply to go to the other side. */
export interface TurnEnd {
  ok: boolean;
  reply: string;
  mayFlow: boolean;
}

export type ExchangeStep =
  | { next: 'turn'; turn: number; side: 'requester' | 'target' }
  | { next: 'announce'; why: string }
  | { next: 'deliver' }
  | { next: 'end'; why: string };

export function advanceExchange(state: ExchangeState, end: TurnEnd): ExchangeStep {
  const reply = end.reply.trim();
  switch (state.phase) {
    case 'request':
      if (!end.ok) return { next: 'end', why: 'the first run failed' };
      if (reply === '') return { next: 'end', why: 'the first run gave no reply' };
      return nextTurn(state, end, reply);
    case 'reply':
      if (!end.ok) return { next: 'announce', why: `reply-back turn ${state.turn} failed` };
      if (reply === '') return { next: 'announce', why: `reply-back turn ${state.turn} was empty` };
      return nextTurn(state, end, reply);
    case 'announce':
      if (!end.ok) return { next: 'end', why: 'the announce turn failed' };
      if (reply === '' || reply === announceSkip) return { next: 'end', why: 'silent' };
      return { next: 'deliver' };
  }
}

function nextTurn(state: ExchangeState, end: TurnEnd, reply: string): ExchangeStep {
  const turn = state.turn + 1;
  // The requester speaks first, with the target's first reply; then they alternate.
  const side = turn % 2 === 1 ? 'requester' : 'target';
  // This includes a requester that was reset or closed since: the target still has a result, and its own channel to announce it on.
  if (side === 'requester' && !state.canReplyBack) return { next: 'announce', why: 'the requester cannot get a reply' };
  if (reply === replySkip) return { next: 'announce', why: 'a side skipped its reply' };
  if (state.turn >= state.maxTurns) return { next: 'announce', why: `all ${state.maxTurns} turns were taken` };
  if (!end.mayFlow) return { next: 'announce', why: 'policy stopped the reply' };
  return { next: 'turn', turn, side };
}

/** Whether a reply counts as the latest reply of an exchange. Skips and empty replies do not. */
export function isTelling(reply: string): boolean {
  const text = reply.trim();
  return text !== '' && text !== replySkip;
}
