// A reporter: at the end of a run, the seconds of each test file, by group, with the budget of the group beside it. It only prints.
import { relative } from 'node:path';
import type { Reporter, TestModule } from 'vitest/node';
import { budgets } from './budgets.ts';

const shownFiles = 8;

export default class Seconds implements Reporter {
  private readonly began = new Map<string, number>();
  private readonly ended = new Map<string, number>();

  onTestModuleStart(module: TestModule): void {
    const { name } = module.project;
    if (!this.began.has(name)) this.began.set(name, performance.now() - spentBefore(module));
  }

  onTestModuleEnd(module: TestModule): void {
    this.ended.set(module.project.name, performance.now());
  }

  onTestRunEnd(modules: readonly TestModule[]): void {
    const groups = Map.groupBy(modules, (module) => module.project.name);
    const lines = ['', ' Seconds by file, the longest first; of a group, from its first to its last'];
    for (const [name, files] of groups) {
      const took = (this.ended.get(name) ?? 0) - (this.began.get(name) ?? 0);
      const budget = budgets[name] === undefined ? '' : ` of ${budgets[name]}`;
      lines.push('', ` ${name}: ${seconds(took)} s${budget}, ${files.length} files`);
      const sorted = files.map((file) => ({ file, ms: spent(file) })).toSorted((a, b) => b.ms - a.ms);
      for (const { file, ms } of sorted.slice(0, shownFiles)) lines.push(`${seconds(ms).padStart(8)}  ${relative('.', file.moduleId)}`);
      const rest = sorted.slice(shownFiles);
      if (rest.length > 0) lines.push(`${seconds(rest.reduce((sum, { ms }) => sum + ms, 0)).padStart(8)}  ${rest.length} more`);
    }
    process.stdout.write(`${lines.join('\n')}\n`);
  }
}

const seconds = (ms: number) => (ms / 1000).toFixed(1);

function spentBefore(module: TestModule): number {
  const { environmentSetupDuration, prepareDuration, collectDuration, setupDuration } = module.diagnostic();
  return environmentSetupDuration + prepareDuration + collectDuration + setupDuration;
}

const spent = (module: TestModule) => spentBefore(module) + module.diagnostic().duration;
