// What the commands of the command table share: flags, how to reach a gateway, and how arguments are read.
import { Command, InvalidArgumentError, Option } from 'commander';
import type { Client } from '../client/client.ts';
import { parseDuration } from '../durations.ts';
import type { OperationName } from '../protocol/operations/all.ts';
import type { Operations } from '../protocol/operations/operation.ts';
import type { ReachFlags } from './reach.ts';
import { visible, type Terminal } from './terminal.ts';

/** A command that reads the config, with the flags that locate it. */
export function command(parent: Command, terminal: Terminal, usage: string, about: string): Command {
  return configure(parent.command(usage), terminal)
    .description(about)
    .option('--config <file>', 'config file (or INTERLANE_CONFIG; else interlane.json5 in the state directory, if it exists)')
    .option(...stateDirOption);
}

export type ClientCommand = (parent: Command, usage: string, operation: OperationName, about: string) => Command;

/** A command that calls an operation of a running gateway: the flags that say which gateway. */
export function clientOf(terminal: Terminal, table: Operations | undefined): ClientCommand {
  return (parent, usage, operation, about) => {
    const isCallable = table === undefined || Object.hasOwn(table, operation);
    return configure(isCallable ? parent.command(usage) : new Command(), terminal)
      .description(about)
      .option('--json', 'print JSON')
      .option('--url <address>', 'address of the gateway (or INTERLANE_URL; else the gateway that runs on the state directory)')
      .option(
        '--token <token>',
        'token for the gateway (prefer INTERLANE_TOKEN, as other users can read command lines; your own gateway needs none)',
      )
      .option(...stateDirOption);
  };
}

export const stateDirOption = ['--state-dir <directory>', 'state directory (or INTERLANE_STATE_DIR; else ~/.interlane)'] as const;

/** Connects, calls, closes. Commander gives the arguments first, then the flags and the command. */
export function asking<F extends ReachFlags, A extends (string | string[] | undefined)[]>(
  terminal: Terminal,
  work: (client: Client, flags: F, ...args: A) => Promise<void>,
) {
  return async (...given: [...args: A, flags: F, command: Command]) => {
    const flags = given.at(-2) as F;
    const { reached } = await import('./reach.ts');
    await reached(terminal, flags, (client) => work(client, flags, ...(given.slice(0, -2) as A)));
  };
}

export const number = (least: number, most: number) => (text: string) => {
  const value = Number(text);
  if (!/^\d{1,9}$/.test(text) || value < least || value > most) throw new InvalidArgumentError(`Write a number from ${least} to ${most}.`);
  return value;
};

/** Words separated by commas. As separate arguments they would swallow a session that follows. */
export function someOf(flags: string, about: string, choices: string[]): Option {
  return new Option(flags, about).choices(choices).argParser((text) => {
    const words = text.split(',').map((word) => word.trim());
    if (words.every((word) => choices.includes(word))) return words;
    throw new InvalidArgumentError(`Allowed choices are ${choices.join(', ')}.`);
  });
}

/** A bare number counts seconds. */
export function duration(text: string): number {
  if (/^0(ms|s|m|h|d)?$/.test(text)) return 0;
  const ms = parseDuration(/^\d+$/.test(text) ? `${text}s` : text);
  if (ms === undefined) throw new InvalidArgumentError('Write a number and a unit (ms, s, m, h, d), for example 30s or 5m.');
  return ms;
}

/** The life of a token. A bare number could be days as well as seconds, so the unit is required. */
export function lifetime(text: string): number {
  const ms = parseDuration(text);
  if (ms === undefined)
    throw new InvalidArgumentError('Write a number and a unit (s, m, h, d, w), for example 12h or 30d; at most ten years.');
  return ms;
}

export const timeoutOption = (about: string) => new Option('--timeout <time>', about).argParser(duration).default(300_000, '5m');

/** Commander writes to the terminal it was given and throws instead of exiting. */
export function configure(made: Command, terminal: Terminal): Command {
  return made.exitOverride().configureOutput({
    writeOut: (text) => terminal.stdout.write(text),
    writeErr: (text) => terminal.stderr.write(visible(text)),
  });
}
