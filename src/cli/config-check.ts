// `interlane config check`, and the setup that a config makes on this machine: `up`, `doctor` and `explain` get the same one.
import { connect } from 'node:net';
import type { LoadedConfig } from '../config/load.ts';
import type { Paths } from '../config/paths.ts';
import type { Config } from '../config/schema.ts';
import type { Found } from '../runtimes/model/choice.ts';
import { findModel } from '../runtimes/model/models.ts';
import { makeSetup, type Setup } from '../setup.ts';
import { count, type Terminal } from './terminal.ts';

/** Throws what `up` would throw, with the same words. */
export async function setupHere(terminal: Terminal, paths: Paths, loaded: LoadedConfig): Promise<Setup> {
  return makeSetup(loaded, 1, { stateDir: paths.stateDir, found: await modelHere(terminal, loaded.config) });
}

export async function configCheck(terminal: Terminal, paths: Paths, loaded: LoadedConfig): Promise<void> {
  const { warnings } = await setupHere(terminal, paths, loaded);
  for (const warning of warnings) terminal.stdout.write(`! ${warning}\n`);
  const said =
    paths.configFile === undefined
      ? `There is no config file at ${paths.usualConfigFile}; the built-in defaults apply.`
      : warnings.length > 0
        ? `${paths.configFile} can be used, with ${count(warnings.length, 'warning')}.`
        : `${paths.configFile} is fine.`;
  terminal.stdout.write(`${said}\n`);
}

/** The model that `up` finds on this machine when none is configured. */
export const modelHere = (terminal: Terminal, config: Config): Promise<Found | undefined> => findModel(config, terminal.env, fetchIfThere);

/** Checks the port first: loading `fetch` takes 20 ms and 5 MB, and usually nothing listens. */
const fetchIfThere: typeof fetch = async (input, init) => {
  const { hostname, port } = new URL(input);
  await new Promise<void>((resolve, reject) => {
    const socket = connect({ host: hostname, port: Number(port), ...(init?.signal ? { signal: init.signal } : {}) });
    socket.once('error', reject);
    socket.once('connect', () => {
      socket.destroy();
      resolve();
    });
  });
  return fetch(input, init);
};
