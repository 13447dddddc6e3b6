// `npm run bench`: the rules, the engine, the gateway, models, memory, and what others wait; one of them by name, and `--full` for the sizes that take minutes.
const words = process.argv.slice(2);
if (words[0] === '--child') await child(words[1]!, words.slice(2));
else {
  const unknown = words.filter((word) => !['rules', 'engine', 'gateway', 'models', 'memory', 'stretch', 'fair', '--full'].includes(word));
  if (unknown.length > 0) {
    process.stderr.write(
      `bench does not know ${unknown.join(', ')}; it takes rules, engine, gateway, models, memory, stretch, fair and --full\n`,
    );
    process.exitCode = 2;
  } else {
    const named = words.filter((word) => word !== '--full');
    const wanted = (name: string) => named.length === 0 || named.includes(name);
    if (wanted('rules')) (await import('./rules.ts')).benchRules();
    if (wanted('engine')) await (await import('./engine.ts')).benchEngine({ full: words.includes('--full') });
    if (wanted('gateway')) await (await import('./gateway.ts')).benchGateway();
    if (wanted('models')) await (await import('./models.ts')).benchModels();
    if (wanted('memory')) await (await import('./memory.ts')).benchMemory();
    if (wanted('stretch')) await (await import('./stretch.ts')).benchStretch();
    if (wanted('fair')) await (await import('./fair.ts')).benchFair();
  }
}

/** A process of its own that loads nothing but what its role needs: the memory of some is measured. */
async function child(role: string, args: string[]): Promise<void> {
  if (role === 'gateway') await (await import('./gateway-server.ts')).serveGateway(args[0]!);
  else if (role === 'raw') await (await import('./raw-server.ts')).serveRaw();
  else if (role === 'clients') (await import('./clients.ts')).runClients();
  else if (role === 'hostile') (await import('./hostile.ts')).runHostile();
  else if (role === 'probe') (await import('./probe.ts')).runProbe();
  else await (await import('./child.ts')).runChild([role, ...args]);
}
