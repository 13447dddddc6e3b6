// Outbound text, inside a command: destination, policy, chunks → rows of the outbox.
import { InterlaneError } from '../errors.ts';
import type { Destination } from '../protocol/session.ts';
import type { Decision, World } from '../rules/decide.ts';
import { announceTarget } from '../rules/announce-target.ts';
import { keyContext } from '../rules/agents.ts';
import { requireSessionKey } from '../rules/session-key.ts';
import type { Body } from '../store/contract.ts';
import type { RunRow, SessionRow } from '../store/rows.ts';
import * as deliveries from '../store/tables/deliveries.ts';
import { withheldAnswer } from '../wording.ts';
import { noteDelivery, type Tx } from './feed.ts';
import { derivedId } from './ids.ts';
import { deliveryOf, destinationOf, filterForChannel, type Filtered } from './policy.ts';

/** Characters of one message on a channel. */
const chunkSize = 4_000;

/** A reply on its way out: where it goes, and what policy says about it. */
export interface Reply {
  out: Outgoing;
  filtered: Filtered;
  /** A rule on output blocks it, so the user gets one sentence instead. */
  withheld: boolean;
}

/** The answer to a chat goes back to the origin of its input, even if another chat has written since. */
export function replyOf(world: World, session: SessionRow, run: RunRow, text: string, now: number): Reply | undefined {
  const own = destinationOf(run) ?? deliveryOf(session);
  if (!own) return undefined;
  const out = { ...own, cause: 'reply', causePk: run.pk, causeId: run.id, text, now };
  const filtered = filterForChannel(world, session, out, text);
  return { out, filtered, withheld: isWithheld(filtered.decision) };
}

export function* deliverReply(t: Tx, world: World, session: SessionRow, { out, filtered, withheld }: Reply): Body<void> {
  yield* enqueueFiltered(t, session, out, filtered);
  if (withheld) yield* deliverNotice(t, world, session, out);
}

/** Send policy and levels refuse silently: a channel that may not get the text may not learn that there is one. */
export const isWithheld = ({ effect, code }: Decision) => effect === 'BLOCK' && code === 'POLICY_BLOCKED';

/** Tells the user that a rule withholds the answer: once for each reply, and only if policy lets this sentence out. */
export function* deliverNotice(t: Tx, world: World, session: SessionRow, blocked: Omit<Outgoing, 'text' | 'causeId'>): Body<void> {
  const out = { ...blocked, cause: 'notice', causeId: `${blocked.cause}:${blocked.causePk}`, text: withheldAnswer };
  if (yield* deliveries.byId(t, idOf(out, 0))) return;
  const filtered = filterForChannel(world, session, out, out.text);
  if (filtered.text !== undefined) yield* enqueueFiltered(t, session, out, filtered);
}

/** An announce goes to the group or channel in the session's key, else to the chat of the session's last message. */
export function* deliverAnnounce(
  t: Tx,
  world: World,
  session: SessionRow,
  exchange: { pk: number; id: string },
  text: string,
  now: number,
): Body<string> {
  const key = requireSessionKey(session.key, keyContext(world.agents, session.agent));
  const target = announceTarget(key, deliveryOf(session));
  if (!target.found) return 'no destination';
  return yield* enqueue(t, world, session, { ...target, cause: 'announce', causePk: exchange.pk, causeId: exchange.id, text, now });
}

/** Text that an operator sends in the name of a session. Throws if policy refuses it. Sent again, it is the same message. */
export function* deliverDirect(
  t: Tx,
  world: World,
  session: SessionRow,
  out: Destination & { causeId: string; hash: string; text: string; now: number },
): Body<string[]> {
  const { decision, text } = filterForChannel(world, session, out, out.text);
  if (text === undefined) throw new InterlaneError(decision.code ?? 'POLICY_BLOCKED', `message was not sent: ${decision.why}`);
  const parts = chunks(text);
  const ids = parts.map((_, part) => derivedId('send', out.causeId, part));
  if (yield* deliveries.byId(t, ids[0]!)) return ids;
  // No row caused this delivery, so the caller's id makes it unique.
  const cause = { cause: `send:${out.causeId}`, causePk: 0 };
  for (const [part, chunk] of parts.entries())
    yield* insertDelivery(t, session, { ...out, ...cause }, ids[part]!, part, chunk, { state: 'pending', error: null });
  return ids;
}

interface Outgoing extends Destination {
  cause: string;
  causePk: number;
  causeId: string;
  hash?: string;
  text: string;
  now: number;
}

/** Returns `queued`, or the reason why policy blocked it. A blocked text gets a row too, so that operators can see why it is missing. */
function* enqueue(t: Tx, world: World, session: SessionRow, out: Outgoing): Body<string> {
  return yield* enqueueFiltered(t, session, out, filterForChannel(world, session, out, out.text));
}

function* enqueueFiltered(t: Tx, session: SessionRow, out: Outgoing, { decision, text }: Filtered): Body<string> {
  if (text === undefined) {
    yield* insertDelivery(t, session, out, idOf(out, 0), 0, '', { state: 'dead', error: decision.why });
    return `blocked: ${decision.why}`;
  }
  for (const [part, chunk] of chunks(text).entries())
    yield* insertDelivery(t, session, out, idOf(out, part), part, chunk, { state: 'pending', error: null });
  return 'queued';
}

/** I2. */
const idOf = ({ cause, causeId }: Outgoing, part: number) => derivedId(cause, causeId, part);

function* insertDelivery(
  t: Tx,
  session: SessionRow,
  out: Outgoing,
  id: string,
  part: number,
  text: string,
  as: { state: 'pending' | 'dead'; error: string | null },
): Body<void> {
  const destKey = JSON.stringify([out.channel, out.accountId ?? '', out.to, out.threadId ?? '']);
  yield* t.lock(`dest:${destKey}`);
  const pk = yield* deliveries.insert(t, {
    id,
    session_pk: session.pk,
    cause: out.cause,
    cause_pk: out.causePk,
    part,
    dest_key: destKey,
    channel: out.channel,
    account: out.accountId ?? null,
    recipient: out.to,
    thread: out.threadId ?? null,
    chat_type: out.chatType ?? null,
    taint: session.taint,
    text,
    ...as,
    hash: out.hash ?? null,
    now: out.now,
  });
  noteDelivery(t, session, { pk, id, channel: out.channel, recipient: out.to }, as.state, out.now, as.error ?? undefined);
}

/** Cuts at a line end or a space if there is one in the last fifth of a chunk, and never inside a surrogate pair. */
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
