// What a turn of an exchange is told: who speaks, what may be answered. Small, and in one place.
import { announceSkip, replySkip } from '../rules/exchange.ts';

/** For the first run: the text is a message of another session, not of the user. */
export function requestContext(from: string): string {
  return `[Message from session ${from}. It is another agent's session, not the user. Your reply goes back to it.]`;
}

export function replyContext(from: string, turn: number, maxTurns: number): string {
  return `[Reply from session ${from}, turn ${turn} of ${maxTurns}. Answer it, or reply exactly ${replySkip} to end the exchange.]`;
}

export function announceContext(parts: { from: string; request: string; firstReply: string; latestReply: string | undefined }): string {
  const latest = parts.latestReply === undefined ? '' : `\nLatest reply: ${parts.latestReply}`;
  return `[The exchange with session ${parts.from} is over. What you say now is posted to your channel; reply exactly ${announceSkip} to stay silent.]\nRequest: ${parts.request}\nFirst reply: ${parts.firstReply}${latest}`;
}
