// The log: structured lines for machines, short ones for a terminal. They contain names, states and times, never tokens or messages.
import { pino, type DestinationStream, type Logger } from 'pino';
import type { Bus } from '../events/bus.ts';
import { isTerminal } from '../protocol/run.ts';

export type Log = Pick<Logger, 'debug' | 'info' | 'warn' | 'error'>;

interface LogOptions {
  /** `log.level` of the config. */
  level: string | undefined;
  /** Output for a person, not for a program. */
  terminal: boolean;
  write(line: string): void;
}

/** Fields with these names are removed, in case a secret ever gets here. */
const secrets = ['token', 'password', 'authorization', 'cookie', 'apiKey', 'code', 'headers'];

export function createLog({ level, terminal, write }: LogOptions): Log {
  const stream: DestinationStream = { write: terminal ? (line) => write(forPerson(line)) : write };
  return pino(
    {
      level: level ?? (terminal ? 'warn' : 'info'),
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: secrets.flatMap((name) => [name, `*.${name}`]), censor: '[cut]' },
    },
    stream,
  );
}

function forPerson(line: string): string {
  const { level, time, msg, ...rest } = JSON.parse(line) as { level: string; time: string; msg: string } & Record<string, unknown>;
  const facts = Object.entries(rest).map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`);
  const mark = level === 'warn' || level === 'error' ? '!' : ' ';
  return `${mark} ${time.slice(11, 19)} ${[msg, ...facts].join(' ')}\n`;
}

/** Logs the end of runs, deliveries and exchanges, one line each. */
export function logEvents(bus: Bus, log: Log): () => void {
  return bus.subscribe({
    wants: ({ kind }) => kind !== 'entry',
    deliver(event) {
      const common = { session: event.sessionKey };
      if (event.kind === 'run' && isTerminal(event.state)) {
        const fields = { ...common, run: event.runId, outcome: event.state };
        if (event.state === 'ok') log.info(fields, 'run ended');
        else log.warn(fields, 'run ended');
        // The reason may quote the request to a model's service, so it is not logged; "interlane runs" prints it for operators.
        if (event.error !== undefined) log.debug({ ...fields, error: event.error }, 'why the run ended');
      } else if (event.kind === 'delivery' && event.state !== 'pending' && event.state !== 'sending') {
        const fields = { ...common, delivery: event.deliveryId, state: event.state, channel: event.channel };
        if (event.state === 'sent') log.info(fields, 'delivery settled');
        else log.warn({ ...fields, ...(event.error === undefined ? {} : { error: event.error }) }, 'delivery settled');
      } else if (event.kind === 'exchange' && event.reason !== undefined) {
        log.info({ ...common, exchange: event.exchangeId, turns: event.turn, reason: event.reason }, 'exchange ended');
      } else if (event.kind === 'session') log.info({ ...common, change: event.change }, 'session changed');
    },
    reset() {},
    failed: (error) => log.error({ error: String(error) }, 'events can no longer be logged'),
  });
}
