// The command table: words on the command line → one command → exit status.
import { Command, CommanderError } from 'commander';
import { defaultConfig, loadConfig, type LoadedConfig } from '../config/load.ts';
import { findPaths, type PathFlags, type Paths } from '../config/paths.ts';
import { errorTable, InterlaneError, reasonOf } from '../errors.ts';
import { compileWorld } from '../rules/decide.ts';
import { compileRoutes } from '../rules/route.ts';
import { demo } from './demo.ts';
import { explain, topics } from './explain.ts';
import { visible, type Terminal } from './terminal.ts';
import { up } from './up.ts';
import { version } from './version.ts';

export async function run(terminal: Terminal): Promise<number> {
  try {
    await program(terminal).parseAsync(terminal.argv, { from: 'user' });
    return 0;
  } catch (thrown) {
    return report(terminal, thrown);
  }
}

function program(terminal: Terminal): Command {
  const root = configure(new Command('interlane'), terminal)
    .description('A durable session gateway for AI agents.')
    .version(version, '-V, --version')
    .showHelpAfterError('(interlane --help lists the commands)');

  command(root, terminal, 'up', 'start the gateway').action(async (flags: PathFlags) => {
    const { paths, loaded } = open(terminal, flags);
    await up(terminal, paths, loaded.config, loaded.warnings);
  });

  configure(root.command('demo'), terminal)
    .description('watch two agents hold an exchange, on a gateway of its own')
    .action(() => demo(terminal));

  const explainCommand = configure(root.command('explain'), terminal).description(
    'ask the rules why: the answer with every rule that was asked',
  );
  for (const [name, { about, example, fields }] of Object.entries(topics)) {
    command(explainCommand, terminal, `${name} [question]`, about)
      .option('--json', 'print JSON')
      .addHelpText(
        'after',
        `\nThe question is JSON, as an argument or on standard input:\n  interlane explain ${name} '${example}'\n\nIts fields:\n  ${fields.join('\n  ')}`,
      )
      .action(async (question: string | undefined, flags: PathFlags & { json?: boolean }) => {
        const { paths, loaded } = open(terminal, flags);
        await explain(terminal, name, question, loaded.config, {
          json: flags.json === true,
          configName: paths.configFile ?? 'the built-in defaults',
        });
      });
  }

  const copies = {
    backup: 'copy the database into one file, also while the gateway runs',
    restore: 'put a backup in the place of the database; what was there is kept beside it',
  } as const;
  for (const name of ['backup', 'restore'] as const) {
    configure(root.command(`${name} <file>`), terminal)
      .description(copies[name])
      .option(...stateDirOption)
      .action(async (file: string, flags: PathFlags) => {
        const commands = await import('./backup.ts');
        await commands[name](terminal, findPaths(flags, terminal.env, terminal.home).stateDir, file);
      });
  }

  configure(root.command('mcp'), terminal)
    .description('serve the session of INTERLANE_TOKEN over MCP on standard input and output')
    .option(...stateDirOption)
    .action(async (flags: PathFlags) => {
      const { mcp } = await import('./mcp.ts');
      await mcp(terminal, findPaths(flags, terminal.env, terminal.home).stateDir);
    });

  const configCommand = configure(root.command('config'), terminal).description('the config file and its settings');
  configure(configCommand.command('docs'), terminal)
    .description('print every setting with its default and reason')
    .action(async () => {
      const { configReference } = await import('../config/reference.ts');
      terminal.stdout.write(configReference());
    });
  command(configCommand, terminal, 'check', 'check a config file and say what is wrong where').action((flags: PathFlags) => {
    const { paths, loaded } = open(terminal, flags);
    const { warnings } = compileRoutes(loaded.config, compileWorld(loaded.config).agents);
    for (const warning of [...loaded.warnings, ...warnings]) terminal.stdout.write(`! ${warning}\n`);
    terminal.stdout.write(
      paths.configFile
        ? `${paths.configFile} is fine.\n`
        : `There is no config file at ${paths.usualConfigFile}; the built-in defaults hold.\n`,
    );
  });
  return root;
}

/** A command that reads the config: the flags that say where it is. */
function command(parent: Command, terminal: Terminal, usage: string, about: string): Command {
  return configure(parent.command(usage), terminal)
    .description(about)
    .option('--config <file>', 'config file (or INTERLANE_CONFIG; else interlane.json5 in the state directory, if it is there)')
    .option(...stateDirOption);
}

const stateDirOption = ['--state-dir <directory>', 'state directory (or INTERLANE_STATE_DIR; else ~/.interlane)'] as const;

/** Commander writes to the terminal it was given and throws instead of exiting. */
function configure(made: Command, terminal: Terminal): Command {
  return made.exitOverride().configureOutput({
    writeOut: (text) => terminal.stdout.write(text),
    writeErr: (text) => terminal.stderr.write(text),
  });
}

function open(terminal: Terminal, flags: PathFlags): { paths: Paths; loaded: LoadedConfig } {
  const paths = findPaths(flags, terminal.env, terminal.home);
  const loaded = paths.configFile === undefined ? { config: defaultConfig(), warnings: [] } : loadConfig(paths.configFile, terminal.env);
  return { paths, loaded };
}

/** I10. A failure is one plain message and a status from the table; only a bug in Interlane shows where it happened. */
function report(terminal: Terminal, thrown: unknown): number {
  if (thrown instanceof CommanderError) return thrown.exitCode === 0 ? 0 : errorTable.USAGE.exit;
  if (thrown instanceof InterlaneError) {
    terminal.stderr.write(`interlane: ${visible(thrown.message)}\n`);
    return errorTable[thrown.code].exit;
  }
  const trace = terminal.env['INTERLANE_DEBUG'] && thrown instanceof Error ? `\n${thrown.stack}` : '';
  terminal.stderr.write(`interlane: this is a bug in Interlane: ${reasonOf(thrown)}; INTERLANE_DEBUG=1 shows where${trace}\n`);
  return errorTable.INTERNAL.exit;
}
