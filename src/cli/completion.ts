// The command table → a completion script: commands, options, the words an option or argument may be, and session keys from the gateway.
import type { Argument, Command } from 'commander';
import { InterlaneError } from '../errors.ts';

interface Node {
  /** Its words after `interlane`, separated by blanks; the root has none. */
  path: string;
  commands: { name: string; about: string }[];
  options: { flag: string; about: string; takesValue: boolean; choices: readonly string[] }[];
  /** Whether its first argument is a session. */
  session: boolean;
  words: readonly string[];
}

export function completion(root: Command, shell: string): string {
  const nodes = nodesOf(root);
  if (shell === 'bash') return bash(nodes);
  if (shell === 'zsh') return `autoload -U +X bashcompinit && bashcompinit\n${bash(nodes)}`;
  if (shell === 'fish') return fish(nodes);
  throw new InterlaneError('USAGE', `shell ${JSON.stringify(shell.slice(0, 50))} is not supported; use bash, zsh or fish`);
}

function nodesOf(command: Command, path: string[] = []): Node[] {
  const node: Node = {
    path: path.join(' '),
    commands: command.commands.map((one) => ({ name: one.name(), about: one.description() })),
    options: [
      ...command.options.map(({ long, short, description, required, argChoices }) => ({
        flag: long ?? short!,
        about: description,
        takesValue: required,
        choices: argChoices ?? [],
      })),
      { flag: '--help', about: 'show help', takesValue: false, choices: [] },
    ],
    session: firstArgument(command)?.name() === 'session',
    words: firstArgument(command)?.argChoices ?? [],
  };
  return [node, ...command.commands.flatMap((one) => nodesOf(one, [...path, one.name()]))];
}

const firstArgument = ({ registeredArguments }: Command): Argument | undefined => registeredArguments[0];

/** zsh uses the same script. Bash splits words at colons, which keys contain, so the script reads the word from the line. */
function bash(nodes: Node[]): string {
  const cases = (pick: (node: Node) => string[], keyOf = (node: Node) => node.path) =>
    nodes.flatMap((node) => {
      const words = pick(node);
      return words.length === 0 ? [] : [`    ${quote(keyOf(node))}) echo ${quote(words.join(' '))} ;;`];
    });
  const values = nodes.flatMap(({ path, options }) =>
    options
      .filter(({ choices }) => choices.length > 0)
      .map((one) => `    ${quote(`${path} ${one.flag}`)}) echo ${quote(one.choices.join(' '))} ;;`),
  );
  const taking = [...new Set(nodes.flatMap(({ options }) => options.filter((one) => one.takesValue).map((one) => one.flag)))];
  return `# Completion of interlane, made from its command table.
_interlane_words() {
  case "$1" in
${cases(({ commands, words }) => [...commands.map(({ name }) => name), ...words]).join('\n')}
  esac
}
_interlane_options() {
  case "$1" in
${cases(({ options }) => options.map(({ flag }) => flag)).join('\n')}
  esac
}
_interlane_values() {
  case "$1" in
${values.join('\n')}
  esac
}
_interlane() {
  local line="\${COMP_LINE:0:COMP_POINT}" cur prev path='' word takes=' ${taking.join(' ')} ' skip='' args=0 found
  cur="\${line##*[[:space:]]}"
  local before=(\${line%"$cur"})
  prev="\${before[\${#before[@]}-1]}"
  for word in "\${before[@]:1}"; do
    if [[ -n $skip ]]; then skip=''; continue; fi
    if [[ $word == -* ]]; then [[ $takes == *" $word "* ]] && skip=1; continue; fi
    if [[ " $(_interlane_words "$path") " == *" $word "* ]]; then path="\${path:+$path }$word"; else args=$((args + 1)); fi
  done
  if [[ -n $skip ]]; then
    found="$(_interlane_values "$path $prev")"
    [[ $prev == --session ]] && found="$(interlane sessions --keys --limit 1000 2>/dev/null)"
    if [[ -z $found ]]; then COMPREPLY=($(compgen -f -- "$cur")); return; fi
  elif [[ $cur == -* ]]; then
    found="$(_interlane_options "$path")"
  else
    found="$(_interlane_words "$path")"
    case "$path" in
    ${nodes
      .filter(({ session }) => session)
      .map(({ path }) => quote(path))
      .join('|')}) [[ $args == 0 ]] && found="$(interlane sessions --keys --limit 1000 2>/dev/null)" ;;
    esac
    if [[ -z $found ]]; then COMPREPLY=($(compgen -f -- "$cur")); return; fi
  fi
  COMPREPLY=($(compgen -W "$found" -- "$cur"))
  if [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]]; then
    local head="\${cur%"\${cur##*:}"}"
    COMPREPLY=("\${COMPREPLY[@]#"$head"}")
  fi
}
complete -F _interlane interlane
`;
}

function fish(nodes: Node[]): string {
  const lines = ['# Completion of interlane, made from its command table.', 'complete -c interlane -f'];
  for (const { path, commands, options, session, words } of nodes) {
    const seen = path.split(' ').filter((word) => word !== '');
    const below = commands.map(({ name }) => name);
    const here = [
      ...seen.map((word) => `__fish_seen_subcommand_from ${word}`),
      ...(below.length > 0 ? [`not __fish_seen_subcommand_from ${below.join(' ')}`] : []),
    ].join('; and ');
    const when = here === '' ? '' : ` -n ${quote(here)}`;
    for (const { name, about } of commands) lines.push(`complete -c interlane${when} -a ${name} -d ${quote(about)}`);
    for (const word of words) lines.push(`complete -c interlane${when} -a ${word}`);
    if (session) lines.push(`complete -c interlane${when} -a '(interlane sessions --keys --limit 1000 2>/dev/null)'`);
    for (const { flag, about, takesValue, choices } of options) {
      const value = choices.length > 0 ? ` -x -a ${quote(choices.join(' '))}` : takesValue ? ' -r' : '';
      lines.push(`complete -c interlane${when} -l ${flag.replace('--', '')}${value} -d ${quote(about)}`);
    }
  }
  return `${lines.join('\n')}\n`;
}

const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;
