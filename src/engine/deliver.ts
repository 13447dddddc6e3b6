// Text on its way out, inside a command: destination, policy, chunks → rows of the outbox.
import type { World } from '../rules/decide.ts';
import { announceTarget } from '../rules/announce-target.ts';
import { keyContext } from '../rules/agents.ts';
import { requireSessionKey } from '../rules/session-key.ts';
import type { Body } from '../store/contract.ts';
import type { RunRow, SessionRow } from '../store/rows.ts';
import { noteDelivery, type Tx } from './feed.ts';
import { derivedId } from './ids.ts';
import { deliveryOf, passOut } from './policy.ts';

/** Characters of one message on a channel. */
const chunkSize = 4_000;

/** The answer to a chat goes back to where the chat is. */
export function* deliverReply(t: Tx, world: World, session: SessionRow, run: RunRow, text: string, now: number): Body<string> {
  return yield* enqueue(t, world, session, { cause: 'reply', causePk: run.pk, causeId: run.id, text, now });
}

/** An announce goes to the group or channel in the session's key, else to where the session last spoke. */
export function* deliverAnnounce(
  t: Tx,
  world: World,
  session: SessionRow,
  exchange: { pk: number; id: string },
  text: string,
  now: number,
): Body<string> {
  return yield* enqueue(t, world, session, { cause: 'announce', causePk: exchange.pk, causeId: exchange.id, text, now });
}

interface Outgoing {
  cause: string;
  causePk: number;
  causeId: string;
  text: string;
  now: number;
}

/** Answers with what happened: `queued`, `no destination`, or the reason it was blocked. */
function* enqueue(t: Tx, world: World, session: SessionRow, out: Outgoing): Body<string> {
  const key = requireSessionKey(session.key, keyContext(world.agents, session.agent));
  const target = announceTarget(key, deliveryOf(session));
  if (!target.found) return 'no destination';
  const { decision, text } = yield* passOut(t, world, session, target.channel, out.text);
  if (text === undefined) return `blocked: ${decision.why}`;
  const destKey = JSON.stringify([target.channel, target.accountId ?? '', target.to, target.threadId ?? '']);
  for (const [part, chunk] of chunks(text).entries()) {
    const id = derivedId(out.cause, out.causeId, part);
    const { lastId } = yield* t.run(
      `INSERT INTO deliveries (id, session_pk, cause, cause_pk, part, dest_key, channel, account, recipient, thread, taint, text, due_at, first_at)
       VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)`,
      id,
      session.pk,
      out.cause,
      out.causePk,
      part,
      destKey,
      target.channel,
      target.accountId ?? null,
      target.to,
      target.threadId ?? null,
      session.taint,
      chunk,
      out.now,
      out.now,
    );
    yield* noteDelivery(t, session, { pk: lastId, id, channel: target.channel, recipient: target.to }, 'pending', out.now);
  }
  return 'queued';
}

/** Cut at a line end or a space where there is one in the last fifth of a chunk; never inside a surrogate pair. */
function chunks(text: string): string[] {
  const parts: string[] = [];
  let rest = text;
  while (rest.length > chunkSize) {
    const window = rest.slice(0, chunkSize);
    const line = window.lastIndexOf('\n');
    const space = window.lastIndexOf(' ');
    let at = line > chunkSize * 0.8 ? line + 1 : space > chunkSize * 0.8 ? space + 1 : chunkSize;
    if (/[\ud800-\udbff]/.test(rest[at - 1]!)) at--;
    parts.push(rest.slice(0, at));
    rest = rest.slice(at);
  }
  return [...parts, rest];
}
