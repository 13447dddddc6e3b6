// `interlane/client` must load in a browser: nothing that it imports, however indirectly, needs Node.js.
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, it } from 'vitest';

/** Packages that run in browsers. */
const allowed = new Set(['zod']);
/** Loaded only where the runtime has no WebSocket. */
const lazily = new Set(['ws']);

/** Files that a file loads, types left out, and packages by how they are loaded. */
function importsOf(file: string): { files: string[]; packages: string[]; lazy: string[] } {
  const code = readFileSync(file, 'utf8').replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, '');
  const paths = [...code.matchAll(/^(?:import|export)\s(?!type\s)(?:([^;]*?)\sfrom\s)?'([^']+)'/gm)]
    .filter(([, names]) => !/^\{(\s*type\s[^,}]+,?)+\s*\}$/.test(names ?? ''))
    .map(([, , path]) => path!);
  const lazy = [...code.matchAll(/\bimport\('([^']+)'\)/g)].map(([, path]) => path!);
  const inside = (path: string) => path.startsWith('.');
  return {
    files: [...paths, ...lazy].filter(inside).map((path) => join(dirname(file), path)),
    packages: paths.filter((path) => !inside(path)),
    lazy: lazy.filter((path) => !inside(path)),
  };
}

function reachable(entry: string): Map<string, ReturnType<typeof importsOf>> {
  const found = new Map<string, ReturnType<typeof importsOf>>();
  const visit = (file: string) => {
    if (found.has(file)) return;
    const imports = importsOf(file);
    found.set(file, imports);
    imports.files.forEach(visit);
  };
  visit(entry);
  return found;
}

it('the client entry reaches no module that needs Node.js', () => {
  const files = reachable('src/client/index.ts');
  expect([...files.keys()]).toEqual(expect.arrayContaining(['src/client/conversation.ts', 'src/protocol/frame.ts', 'src/errors.ts']));
  const needing = [...files].flatMap(([file, { packages, lazy }]) => [
    ...packages.filter((name) => !allowed.has(name)).map((name) => `${file} imports ${name}`),
    ...lazy.filter((name) => !lazily.has(name)).map((name) => `${file} loads ${name}`),
  ]);
  expect(needing).toEqual([]);
});

it('finds what it looks for: the whole package does need Node.js', () => {
  const packages = new Set([...reachable('src/index.ts').values()].flatMap(({ packages }) => packages));
  expect([...packages]).toEqual(expect.arrayContaining(['node:sqlite', 'ws', 'zod']));
});

it('uses no global of Node.js', () => {
  for (const file of reachable('src/client/index.ts').keys()) {
    const code = readFileSync(file, 'utf8').replace(/\/\*[\s\S]*?\*\/|\/\/.*$/gm, '');
    expect([file, /\b(process\.|Buffer\b|require\(|__dirname|setImmediate)/.exec(code)?.[0]]).toEqual([file, undefined]);
  }
});
