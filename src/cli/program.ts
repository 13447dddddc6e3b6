// The command table: words on the command line → one command → exit status. Each command loads its own file when it runs.
import { Argument, Command, CommanderError, Option } from 'commander';
import type { LoadedConfig } from '../config/load.ts';
import { findPaths, type PathFlags, type Paths } from '../config/paths.ts';
import { errorTable, InterlaneError, reasonOf } from '../errors.ts';
import type { Operations } from '../protocol/operations/operation.ts';
import { inCliWords } from './cli-words.ts';
import { asking, clientOf, command, configure, lifetime, number, stateDirOption, type ClientCommand } from './command.ts';
import type { DoctorFlags } from './doctor.ts';
import type { JoinFlags } from './join.ts';
import type { ReachFlags } from './reach.ts';
import { visible, type Terminal } from './terminal.ts';
import { sessionCommands } from './session-commands.ts';
import type { CreateFlags } from './tokens.ts';
import { fieldsOf, topics, type TopicName } from './topics.ts';
import type { ExportFlags, ImportFlags } from './transfer.ts';
import type { UpFlags } from './up.ts';
import { version } from './version.ts';

/** With a table of operations, commands that call one which is not in it are left out. The whole table is not loaded for its names. */
export async function run(terminal: Terminal, table?: Operations): Promise<number> {
  try {
    const outcome = { status: 0 };
    await program(terminal, outcome, table).parseAsync(terminal.argv, { from: 'user' });
    return outcome.status;
  } catch (thrown) {
    return report(terminal, thrown);
  }
}

/** `outcome.status` is for a command that failed after it printed everything itself. */
function program(terminal: Terminal, outcome: { status: number }, table: Operations | undefined): Command {
  const client = clientOf(terminal, table);
  const root = configure(new Command('interlane'), terminal)
    .description('A durable session gateway for AI agents.')
    .version(version, '-V, --version')
    // An option belongs to the command before it: `sessions` and `sessions new` have some of the same name.
    .enablePositionalOptions()
    .showHelpAfterError('(interlane --help lists the commands)');

  root.commandsGroup('The gateway:');
  gatewayCommands(root, terminal, outcome, client);
  root.commandsGroup('Sessions, on a running gateway:');
  sessionCommands(root, terminal, outcome, client);
  root.commandsGroup('Who may connect:');
  tokenCommands(root, terminal, client);
  guestCommands(root, terminal, client);
  root.commandsGroup('The rules:');
  ruleCommands(root, terminal);
  root.commandsGroup('The data:');
  dataCommands(root, terminal);
  root.commandsGroup('The shell:');
  shellCommands(root, terminal);
  return root.helpCommand('help [command]', 'show how to use a command');
}

function gatewayCommands(root: Command, terminal: Terminal, outcome: { status: number }, client: ClientCommand): void {
  command(root, terminal, 'up', 'start the gateway')
    .option('--port <number>', 'port to listen on (or INTERLANE_PORT; else gateway.port, 4683); 0 takes any free port', number(0, 65_535))
    .option('--host <address>', 'address to listen on (else gateway.host, 127.0.0.1)')
    .addHelpText(
      'after',
      '\nThe gateway accepts the value of INTERLANE_TOKEN as an admin token. It needs at least 24 random characters and is never printed.',
    )
    .action(async (flags: PathFlags & UpFlags) => {
      const { paths, loaded } = await open(terminal, flags);
      const { up } = await import('./up.ts');
      await up(terminal, paths, loaded, flags);
    });

  client(root, 'status', 'status', 'show what the gateway is doing').action(
    asking(terminal, async (client, flags) => (await import('./status.ts')).status(terminal, client, flags.json)),
  );

  command(root, terminal, 'doctor', 'diagnose problems and suggest fixes')
    .option('--port <number>', 'port to check (default: the port that "up" uses)', number(0, 65_535))
    .option('--json', 'print JSON')
    .action(async (flags: DoctorFlags) => {
      outcome.status = await (await import('./doctor.ts')).doctor(terminal, flags);
    });

  configure(root.command('demo'), terminal)
    .description('watch two agents talk, on a temporary gateway')
    .action(async () => (await import('./demo.ts')).demo(terminal));
}

function tokenCommands(root: Command, terminal: Terminal, client: ClientCommand): void {
  const token = configure(root.command('token'), terminal).description('manage the tokens of people and programs that connect');
  client(token, 'list', 'tokens.list', 'list the tokens, without their secrets').action(
    asking(terminal, async (client, flags) => (await import('./tokens.ts')).listTokens(terminal, client, flags.json)),
  );
  client(token, 'create <name>', 'tokens.create', 'create a token and print its secret, once')
    .addOption(new Option('--scope <scope>', 'what it may do (default: read)').choices(['read', 'write', 'admin']))
    .addOption(new Option('--level <level>', 'the highest level it may see').choices(['PUBLIC', 'INTERNAL', 'CONFIDENTIAL', 'RESTRICTED']))
    .option('--session <session>', 'bind it to a session: it can only call tools, as that session')
    .addOption(new Option('--expires <time>', 'how long it works, such as 30d (default: until it is revoked)').argParser(lifetime))
    .action(
      asking(terminal, async (client, flags: ReachFlags & CreateFlags, name: string) =>
        (await import('./tokens.ts')).createToken(terminal, client, name, flags),
      ),
    );
  client(token, 'rotate <name>', 'tokens.rotate', 'give a token a new secret; the old one stops working at once').action(
    asking(terminal, async (client, flags, name: string) => (await import('./tokens.ts')).rotateToken(terminal, client, name, flags.json)),
  );
  client(token, 'revoke <name>', 'tokens.revoke', 'revoke a token and close its connections at once').action(
    asking(terminal, async (client, flags, name: string) => (await import('./tokens.ts')).revokeToken(terminal, client, name, flags.json)),
  );
  client(token, 'sign-in', 'tokens.signIn', 'print a link that signs a browser in, once').action(
    asking(terminal, async (client, flags) => (await import('./tokens.ts')).signIn(terminal, client, flags.json)),
  );
}

function guestCommands(root: Command, terminal: Terminal, client: ClientCommand): void {
  client(
    root,
    'join <name>',
    'guests.join',
    'let an outside harness join as a guest; prints its token, its configuration and what to tell it',
  )
    .option('--agent <id>', 'the agent whose guest it is (default: the default agent)')
    .addOption(
      new Option('--see <what>', 'what its tools may see: sessions it spawned (default), those of its agent, or all').choices([
        'tree',
        'agent',
        'all',
      ]),
    )
    .option('--rotate', 'give an existing guest a new token; the old one stops working at once')
    .action(
      asking(terminal, async (client, flags: ReachFlags & JoinFlags, name: string) =>
        (await import('./join.ts')).join(terminal, client, name, flags),
      ),
    );

  configure(root.command('mcp'), terminal)
    .description('serve the session of INTERLANE_GUEST_TOKEN over MCP on standard input and output')
    .option('--url <address>', 'address of the gateway (or INTERLANE_URL; else the gateway that runs on the state directory)')
    .option(...stateDirOption)
    .action(async (flags: ReachFlags) => (await import('./mcp.ts')).mcp(terminal, flags));
}

function ruleCommands(root: Command, terminal: Terminal): void {
  const explainCommand = configure(root.command('explain'), terminal).description('explain a decision, with every rule behind it');
  for (const [name, { about, example, schema }] of Object.entries(topics)) {
    command(explainCommand, terminal, `${name} [question]`, about)
      .option('--json', 'print JSON')
      .addHelpText(
        'after',
        () =>
          `\nWrite the question as JSON, as an argument or on standard input:\n  interlane explain ${name} '${example}'\n\nIts fields:\n  ${fieldsOf(schema).join('\n  ')}`,
      )
      .action(async (question: string | undefined, flags: PathFlags & { json?: boolean }) => {
        const { explain } = await import('./explain.ts');
        const named = Boolean(flags.config || terminal.env['INTERLANE_CONFIG']);
        const { stateDir } = findPaths(flags, terminal.env, terminal.home);
        const opened = () => open(terminal, flags);
        await explain(terminal, name as TopicName, question, opened, stateDir, { json: flags.json === true, named });
      });
  }

  const configCommand = configure(root.command('config'), terminal).description('the config file and its settings');
  configure(configCommand.command('docs'), terminal)
    .description('print every setting with its default and reason')
    .action(async () => {
      const { configReference } = await import('../config/reference.ts');
      terminal.stdout.write(configReference());
    });
  command(configCommand, terminal, 'check', 'check a config file and show each mistake with its position').action(
    async (flags: PathFlags) => {
      const { paths, loaded } = await open(terminal, flags);
      await (await import('./config-check.ts')).configCheck(terminal, paths, loaded);
    },
  );
}

function dataCommands(root: Command, terminal: Terminal): void {
  const stateOf = (flags: PathFlags) => findPaths(flags, terminal.env, terminal.home).stateDir;
  const local = (usage: string, about: string) =>
    configure(root.command(usage), terminal)
      .description(about)
      .option(...stateDirOption);

  local('backup <file>', 'copy the database into one file, also while the gateway runs').action(async (file: string, flags: PathFlags) =>
    (await import('./backup.ts')).backup(terminal, stateOf(flags), file),
  );
  local('restore <file>', 'replace the database with a backup; the old one is kept beside it').action(
    async (file: string, flags: PathFlags) => (await import('./backup.ts')).restore(terminal, stateOf(flags), file),
  );
  local('export [file]', 'write sessions and their transcripts as lines of JSON, to a file or to standard output')
    .option('--session <key>', 'only this session')
    .addHelpText('after', '\nEach transcript is also written to a file of its own, in "transcripts" in the state directory.')
    .action(async (file: string | undefined, flags: PathFlags & ExportFlags) =>
      (await import('./transfer.ts')).exportSessions(terminal, stateOf(flags), file, flags),
    );
  local('import <file>', 'import sessions from an export ("-" reads standard input); stop the gateway first')
    .option('--session <key>', 'only this session')
    .option('--as-new', 'import a session that exists already under a new key')
    .option('--json', 'print JSON')
    .action(async (file: string, flags: PathFlags & ImportFlags) =>
      (await import('./transfer.ts')).importSessions(terminal, stateOf(flags), file, flags),
    );
}

function shellCommands(root: Command, terminal: Terminal): void {
  configure(root.command('completion'), terminal)
    .description('print a script that completes commands, options and session keys in your shell')
    .addArgument(new Argument('<shell>', 'the shell').choices(['bash', 'zsh', 'fish']))
    .addHelpText(
      'after',
      '\n  bash  source <(interlane completion bash)\n  zsh   source <(interlane completion zsh)\n  fish  interlane completion fish | source',
    )
    .action(async (shell: string) => {
      const { completion } = await import('./completion.ts');
      terminal.stdout.write(completion(root, shell));
    });
}

async function open(terminal: Terminal, flags: PathFlags): Promise<{ paths: Paths; loaded: LoadedConfig }> {
  const { defaultConfig, loadConfig } = await import('../config/load.ts');
  const paths = findPaths(flags, terminal.env, terminal.home);
  const loaded = paths.configFile === undefined ? { config: defaultConfig() } : loadConfig(paths.configFile, terminal.env);
  return { paths, loaded };
}

/** I10. A failure is one plain message and a status from the table; only a bug in Interlane shows where it happened. */
function report(terminal: Terminal, thrown: unknown): number {
  if (thrown instanceof CommanderError) return thrown.exitCode === 0 ? 0 : errorTable.USAGE.exit;
  if (thrown instanceof InterlaneError) {
    terminal.stderr.write(`interlane: ${visible(inCliWords(thrown.message))}\n`);
    return errorTable[thrown.code].exit;
  }
  const trace = terminal.env['INTERLANE_DEBUG'] && thrown instanceof Error ? `\n${thrown.stack}` : '';
  terminal.stderr.write(`interlane: this is a bug in Interlane: ${reasonOf(thrown)}; INTERLANE_DEBUG=1 shows where${trace}\n`);
  return errorTable.INTERNAL.exit;
}
