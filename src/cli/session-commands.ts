// The commands on sessions of a running gateway: chat, sessions, history, send, wait, tail, runs, deliveries, agents.
import { Option, type Command } from 'commander';
import type { ChatFlags } from './chat.ts';
import { asking, duration, number, someOf, timeoutOption, type ClientCommand } from './command.ts';
import type { DeliveriesFlags, ResendFlags, SettleFlags } from './deliveries.ts';
import type { ReachFlags } from './reach.ts';
import type { SendFlags, WaitFlags } from './send.ts';
import type { HistoryFlags, NewFlags, RunsFlags, SessionsFlags } from './sessions.ts';
import type { TailFlags } from './tail.ts';
import type { Terminal } from './terminal.ts';

export function sessionCommands(root: Command, terminal: Terminal, outcome: { status: number }, client: ClientCommand): void {
  const kinds = ['main', 'group', 'cron', 'hook', 'node', 'other'];
  const states = ['queued', 'running', 'waiting', 'ok', 'error', 'timeout', 'aborted'];

  client(root, 'chat [session]', 'sessions.send', 'chat in a session (default: main)')
    .option('--history <number>', 'show the last N messages first', number(0, 200), 10)
    .option('--create', 'open the session if it does not exist')
    .addHelpText(
      'after',
      '\nCtrl-C stops an answer, Ctrl-D leaves, /help lists the commands. In a pipe each line is a message, and the answers go to standard output.',
    )
    .action(async (session: string | undefined, flags: ChatFlags) => {
      outcome.status = await (await import('./chat.ts')).chat(terminal, session ?? 'main', flags);
    });

  const sessions = client(root, 'sessions', 'sessions.list', 'list sessions: pinned ones first, then the most recently active first')
    .option('--agent <id>', 'only sessions of this agent')
    .addOption(someOf('--kind <kinds>', 'only these kinds, separated by commas', kinds))
    .option('--active <time>', 'only sessions active within this time, for example 90m or 2d', duration)
    .option('--search <text>', 'only sessions with this text in key, label or name')
    .option('--label <label>', 'only sessions with this label')
    .option('--limit <number>', 'at most N', number(1, 100_000), 50)
    .option('--archived', 'list archived sessions instead')
    .option('--pinned', 'only pinned sessions')
    .option('--lives <session>', 'list the lives of one session instead; a reset ends a life')
    .option('--tree', 'print each session under the one that spawned it')
    .option('--keys', 'print only the keys')
    .action(
      asking(terminal, async (client, flags: ReachFlags & SessionsFlags) =>
        (await import('./sessions.ts')).sessions(terminal, client, flags),
      ),
    );
  client(sessions, 'new [key]', 'sessions.create', 'open a session and print its key; without a key, one with a new name')
    .option('--agent <id>', 'the agent that answers in it (default: the default agent)')
    .option('--label <label>', 'a name that no other session of the agent has')
    .action(
      asking(terminal, async (client, flags: ReachFlags & NewFlags, key: string | undefined) =>
        (await import('./sessions.ts')).newSession(terminal, client, key, flags),
      ),
    );

  client(root, 'history <session>', 'chat.history', 'print the messages of a session, oldest first')
    .option('--limit <number>', 'the last N messages', number(1, 100_000), 50)
    .option('--tools', 'include tool calls and their results')
    .option('--life <number>', 'an earlier life of the session; "interlane sessions --lives <session>" lists them', number(1, 1_000_000))
    .action(
      asking(terminal, async (client, flags: ReachFlags & HistoryFlags, session: string) =>
        (await import('./sessions.ts')).history(terminal, client, session, flags),
      ),
    );

  client(root, 'send <session> <message...>', 'sessions.send', 'send a message and print the reply; "-" reads it from standard input')
    .option('--no-wait', 'do not wait for the reply; print the run id')
    .addOption(timeoutOption('how long to wait for the reply'))
    .option('--idempotency-key <key>', 'messages with the same key are sent once')
    .option('--create', 'open the session if it does not exist')
    .addHelpText('after', '\nAfter the timeout the run is still going; "interlane wait <run>" waits again.')
    .action(
      asking(terminal, async (client, flags: ReachFlags & SendFlags, session: string, message: string[]) =>
        (await import('./send.ts')).send(terminal, client, session, message, flags),
      ),
    );

  client(root, 'wait <run>', 'agent.wait', 'wait for the end of a run and print its reply; also for one that ended long ago')
    .addOption(timeoutOption('how long to wait'))
    .action(
      asking(terminal, async (client, flags: ReachFlags & WaitFlags, run: string) =>
        (await import('./send.ts')).wait(terminal, client, run, flags),
      ),
    );

  client(root, 'tail [session]', 'sessions.subscribe', 'stream messages live, from one session or from all')
    .option('--tools', 'include tool calls and their results')
    .option('--cursor <cursor>', 'continue from this cursor; --json prints one with each event')
    .action(async (session: string | undefined, flags: TailFlags) => (await import('./tail.ts')).tail(terminal, session, flags));

  client(root, 'runs [session]', 'runs.list', 'list runs, newest first')
    .addOption(someOf('--state <states>', 'only runs in these states, separated by commas', states))
    .option('--limit <number>', 'at most N', number(1, 1000), 50)
    .action(
      asking(terminal, async (client, flags: ReachFlags & RunsFlags, session: string | undefined) =>
        (await import('./sessions.ts')).runs(terminal, client, session, flags),
      ),
    );

  const outgoing = ['pending', 'sending', 'sent', 'failed', 'unknown', 'dead'];
  const deliveries = client(root, 'deliveries [session]', 'deliveries.list', 'list messages to channels, newest first')
    .addOption(someOf('--state <states>', 'only deliveries in these states, separated by commas', outgoing))
    .option('--limit <number>', 'at most N', number(1, 10_000), 50)
    .action(
      asking(terminal, async (client, flags: ReachFlags & DeliveriesFlags, session: string | undefined) =>
        (await import('./deliveries.ts')).deliveries(terminal, client, session, flags),
      ),
    );
  client(deliveries, 'resend <delivery>', 'deliveries.resend', 'send a message again that failed or whose outcome is unknown')
    .option('--attempts <number>', 'the attempts that you saw; if there were more since, nothing is sent', number(0, 1_000_000))
    .action(
      asking(terminal, async (client, flags: ReachFlags & ResendFlags, delivery: string) =>
        (await import('./deliveries.ts')).resend(terminal, client, delivery, flags),
      ),
    );
  client(deliveries, 'settle <delivery>', 'deliveries.settle', 'settle a message whose outcome is unknown; it is not sent again')
    .addOption(
      new Option('--as <outcome>', 'whether it arrived (sent) or is given up (failed)').choices(['sent', 'failed']).makeOptionMandatory(),
    )
    .action(
      asking(terminal, async (client, flags: ReachFlags & SettleFlags, delivery: string) =>
        (await import('./deliveries.ts')).settle(terminal, client, delivery, flags),
      ),
    );

  client(root, 'agents', 'agents.list', 'list the configured agents').action(
    asking(terminal, async (client, flags) => (await import('./status.ts')).agents(terminal, client, flags.json)),
  );
}
