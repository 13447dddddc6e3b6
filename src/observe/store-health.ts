// The health of the store, as operators see it: one log line for each change, a warning in `status`, and whether the gateway is ready.
import type { Clock } from '../clock.ts';
import { InterlaneError, reasonOf } from '../errors.ts';
import type { About, Warn } from '../warn.ts';

interface HealthParts {
  clock: Pick<Clock, 'after' | 'elapsed'>;
  warn: Warn;
  /** Writes as much as ordinary work does. While the store is in trouble this is tried now and then, because an idle gateway would never notice its end. */
  probe(): Promise<void>;
}

const probeMs = 5_000;
/** A store that fails again this soon after it worked needs more good probes the next time, so that the state does not flap. */
const relapseMs = 10 * 60_000;
const mostProbes = 60;
const lookMs = 1_000;
/** The beginning of the line in the log and of the warning in `status`. */
export const storeTrouble = 'store is in trouble';

export class StoreHealth {
  private readonly parts: HealthParts;
  private trouble: { why: string; lasting: boolean } | undefined;
  private lost: string | undefined;
  private findLost: () => string | undefined = () => undefined;
  private lookedAt = Number.NEGATIVE_INFINITY;
  /** Probes without any failure since the last one, and how many end the trouble. */
  private good = 0;
  private needed = 1;
  private endedAt = Number.NEGATIVE_INFINITY;
  private cancel: () => void = () => {};
  private closed = false;

  constructor(parts: HealthParts) {
    this.parts = parts;
  }

  get well(): boolean {
    this.look();
    return this.trouble === undefined && this.lost === undefined;
  }

  warnings(): string[] {
    this.look();
    return [this.trouble?.why, this.lost].flatMap((why) => (why === undefined ? [] : [`${storeTrouble}: ${why}`]));
  }

  /** `lost`: why the store's file is not the one that was opened; undefined while it is. */
  watch(lost: () => string | undefined): void {
    this.findLost = lost;
  }

  /** Looks whether the file is still there, at most once a second: at each commit, and whenever the health is asked for. */
  look(): void {
    const { clock, warn } = this.parts;
    if (this.closed || clock.elapsed() - this.lookedAt < lookMs) return;
    this.lookedAt = clock.elapsed();
    const before = this.lost;
    this.lost = this.findLost();
    if (this.lost !== undefined && before === undefined) warn(`${storeTrouble}: ${this.lost}`);
    if (this.lost === undefined && before !== undefined) warn('store has its file again');
  }

  failed(trouble: { why: string; lasting: boolean }): void {
    this.good = 0;
    if (this.trouble?.why === trouble.why || this.trouble?.lasting) return;
    if (!this.trouble) this.needed = this.parts.clock.elapsed() - this.endedAt < relapseMs ? Math.min(2 * this.needed, mostProbes) : 1;
    this.trouble = trouble;
    this.parts.warn(`${storeTrouble}: ${trouble.why}`);
    this.probeLater();
  }

  private probed(): void {
    if (!this.trouble || this.trouble.lasting || ++this.good < this.needed) return;
    this.trouble = undefined;
    this.endedAt = this.parts.clock.elapsed();
    this.parts.warn('store works again');
  }

  /** A failure that no caller waits for. What follows from the store's trouble is not worth a line of its own. */
  report(what: string, error: unknown, about?: About): void {
    if (this.trouble && error instanceof InterlaneError && error.code === 'STORE_FAILED') return;
    this.parts.warn(`${what}: ${reasonOf(error)}`, about);
  }

  close(): void {
    this.closed = true;
    this.cancel();
  }

  private probeLater(): void {
    if (this.closed || !this.trouble || this.trouble.lasting) return;
    this.cancel();
    this.cancel = this.parts.clock.after(probeMs, () => {
      const again = () => this.probeLater();
      const well = () => this.probed();
      this.parts
        .probe()
        .then(well, () => {})
        .finally(again); // the store tells of a failure itself
    });
  }
}
