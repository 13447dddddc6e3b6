// The default working time of a run.
import type { Config } from './schema.ts';

/** In milliseconds; 0 is no limit. */
export const budgetOf = (config: Config) => config.agents.defaults.timeoutSeconds * 1_000;
