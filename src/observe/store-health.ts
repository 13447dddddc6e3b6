// The health of the store, as operators see it: one log line for each change, a warning in `status`, and whether the gateway is ready.
import type { Clock } from '../clock.ts';
import { InterlaneError, reasonOf } from '../errors.ts';
import type { About, Warn } from '../warn.ts';

interface HealthParts {
  clock: Pick<Clock, 'after'>;
  warn: Warn;
  /** Writes a row. While the store is in trouble this is tried now and then, because an idle gateway would never notice its end. */
  probe(): Promise<void>;
}

const probeMs = 5_000;
/** The beginning of the line in the log and of the warning in `status`. */
export const storeTrouble = 'store is in trouble';

export class StoreHealth {
  private readonly parts: HealthParts;
  private trouble: { why: string; lasting: boolean } | undefined;
  private cancel: () => void = () => {};
  private closed = false;

  constructor(parts: HealthParts) {
    this.parts = parts;
  }

  get well(): boolean {
    return this.trouble === undefined;
  }

  warnings(): string[] {
    return this.trouble ? [`${storeTrouble}: ${this.trouble.why}`] : [];
  }

  failed(trouble: { why: string; lasting: boolean }): void {
    if (this.trouble?.why === trouble.why || this.trouble?.lasting) return;
    this.trouble = trouble;
    this.parts.warn(`${storeTrouble}: ${trouble.why}`);
    this.probeLater();
  }

  /** A commit has changed something. */
  wrote(): void {
    if (!this.trouble || this.trouble.lasting) return;
    this.trouble = undefined;
    this.cancel();
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
      this.parts.probe().then(again, again); // the store tells of a failure itself
    });
  }
}
