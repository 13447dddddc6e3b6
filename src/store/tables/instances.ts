// The `instances` table: the gateways that have used this store. A run and a delivery in flight belong to one of them.
import type { Body, Writing } from '../contract.ts';

export function* join(t: Writing, member: { bootId: string; name: string; pid: number; now: number }): Body<number> {
  const { pk } = (yield* t.one<{ pk: number }>(
    'INSERT INTO instances (boot_id, host, pid, started_at) VALUES (?, ?, ?, ?) RETURNING pk',
    member.bootId,
    member.name,
    member.pid,
    member.now,
  ))!;
  return pk;
}
