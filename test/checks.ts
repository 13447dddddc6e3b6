// `npm run check`, and the seconds it took.
import { spawnSync } from 'node:child_process';
import { budgets } from './budgets.ts';

const began = performance.now();
const { status } = spawnSync('npm', ['run', 'check'], { stdio: 'inherit' });
const seconds = ((performance.now() - began) / 1000).toFixed(1);
process.stdout.write(`\n checks: ${seconds} s of ${budgets['checks']}\n`);
process.exitCode = status ?? 1;
