// `npm run bench`: the rules, the engine, then models; one of them by name, and `--full` for the sizes that take minutes.
import { benchEngine } from './engine.ts';
import { runChild } from './child.ts';
import { benchModels } from './models.ts';
import { benchRules } from './rules.ts';

const [first, ...rest] = process.argv.slice(2);
if (first === '--child') await runChild(rest);
else {
  const words = process.argv.slice(2);
  const unknown = words.filter((word) => !['rules', 'engine', 'models', '--full'].includes(word));
  if (unknown.length > 0) {
    process.stderr.write(`bench does not know ${unknown.join(', ')}; it takes rules, engine, models and --full\n`);
    process.exitCode = 2;
  } else {
    const named = words.filter((word) => word !== '--full');
    if (named.length === 0 || named.includes('rules')) benchRules();
    if (named.length === 0 || named.includes('engine')) await benchEngine({ full: words.includes('--full') });
    if (named.length === 0 || named.includes('models')) await benchModels();
  }
}
