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
    .replace(/(^|; )at \/(\w+)(?:\/[\w/]+)?: (?=[a-zA-Z])/g, (_, before: string, name: string) => `${before}${spaced(name)}: `)
    .replace(/\bsee (\w+\.\w+)/g, (whole, operation: string) => (commands[operation] ? `see: ${commands[operation]}` : whole))
    .replace(/\b\w+\.(?:list|reset|create)\b/g, (operation) => commands[operation] ?? operation);
}

/** `activeMinutes` → `active minutes`. */
const spaced = (name: string) => name.replace(/([a-z])([A-Z])/g, (_, end: string, start: string) => `${end} ${start.toLowerCase()}`);
