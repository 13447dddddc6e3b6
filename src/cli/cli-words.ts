// A message of the gateway in the words of the command line: commands instead of operations, arguments instead of paths in parameters.

/** Operations that a message may name, as commands. `agents.list` is not here: it is also the name of a setting. */
const commands: Record<string, string> = {
  'sessions.list': 'interlane sessions',
  'sessions.reset': '/new in "interlane chat"',
  'runs.list': 'interlane runs',
  'tokens.list': 'interlane token list',
  'tokens.create': 'interlane token create',
  'deliveries.list': 'interlane deliveries',
};

export function inCliWords(message: string): string {
  return message
    .replace(/^invalid [\w.]+ params: /, '')
    .replace(/^\w+\.\w+ needs operator\.(\w+); token "(.*)" has (.*)$/, (_, needed: string, name: string, has: string) => {
      return `token "${name}" may ${has.replaceAll('operator.', '')}, and this command needs ${needed}; create one with: interlane token create <name> --scope ${needed}`;
    })
    .replace(/(^|; )at \/(\w+)(?:\/[\w/]+)?: (?=[a-zA-Z])/g, (_, before: string, name: string) => `${before}${spaced(name)}: `)
    .replace(/(\w): Too small: expected string to have >=1 characters/g, '$1 is empty')
    .replace(/(\w): Too big: expected string to have <=(\d+) characters/g, '$1 is longer than $2 characters')
    .replace(/(\w): Too small: expected \w+ to be >=(\d+)/g, '$1 is less than $2')
    .replace(/(\w): Too big: expected \w+ to be <=(\d+)/g, '$1 is more than $2')
    .replace(/\bsee (\w+\.\w+)/g, (whole, operation: string) => (commands[operation] ? `see: ${commands[operation]}` : whole))
    .replace(/\b\w+\.(?:list|reset|create)\b/g, (operation) => commands[operation] ?? operation);
}

/** `activeMinutes` → `active minutes`. */
const spaced = (name: string) => name.replace(/([a-z])([A-Z])/g, (_, end: string, start: string) => `${end} ${start.toLowerCase()}`);
