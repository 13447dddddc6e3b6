// The setup in use. A changed config replaces it as a whole, or is rejected and changes nothing.
import { changeOf, type Change } from './config/change.ts';
import type { LoadedConfig } from './config/load.ts';
import type { Config } from './config/schema.ts';
import { reasonOf } from './errors.ts';
import { makeSetup, type Setup, type SetupParts } from './setup.ts';

export class LiveSetup {
  private readonly initial: Config;
  private readonly parts: SetupParts;
  private setup: Setup;
  /** The settings that wait for a restart, and why the last config was rejected. */
  readonly pending: { restart: string[]; rejected?: string } = { restart: [] };

  constructor(loaded: LoadedConfig, parts: SetupParts) {
    this.initial = loaded.config;
    this.parts = parts;
    this.setup = makeSetup(loaded, 1, parts);
  }

  readonly current = (): Setup => this.setup;

  reload(next: LoadedConfig): Change {
    const { config: before, rev } = this.setup;
    try {
      const { warnings } = makeSetup(next, rev + 1, this.parts);
      // Parts of the config that need a restart stay as they were, so that no part acts on half of a change.
      const { gateway, store, mcp } = before;
      this.setup = { ...makeSetup({ config: { ...next.config, gateway, store, mcp } }, rev + 1, this.parts), warnings };
    } catch (thrown) {
      this.rejected(reasonOf(thrown));
      throw thrown;
    }
    delete this.pending.rejected;
    // Compared with the start: what waited for a restart before this change still does.
    this.pending.restart = changeOf(this.initial, next.config).restart;
    return { applied: changeOf(before, next.config).applied, restart: this.pending.restart };
  }

  rejected(why: string): void {
    this.pending.rejected = why;
  }
}
