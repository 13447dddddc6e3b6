// The pages a stranger reads name only what exists: files, links, npm scripts; and their sample config loads.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { Writable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { run } from '../src/cli/program.ts';
import type { Terminal } from '../src/cli/terminal.ts';
import { readConfig } from '../src/config/load.ts';
import { makeSetup } from '../src/setup.ts';

const pages = [
  'README.md',
  'AGENTS.md',
  'CHANGELOG.md',
  'docs/design.md',
  'docs/http.md',
  'docs/guests.md',
  ...readdirSync('docs/decisions').map((name) => join('docs/decisions', name)),
];
const text = (page: string) => readFileSync(page, 'utf8');
const { scripts } = JSON.parse(text('package.json')) as { scripts: Record<string, string> };

describe.each(pages)('%s', (page) => {
  it('links only to files that exist', () => {
    const links = [...text(page).matchAll(/\]\((?!https?:|#)([^)#]+)/g)].map((found) => join(dirname(page), found[1]!));
    expect(links.filter((link) => !existsSync(link))).toEqual([]);
  });

  it('names only paths that exist', () => {
    const paths = [...text(page).matchAll(/`((?:src|test|bin|docs|bench|\.ci)\/[\w./-]*)`/g)].map((found) => found[1]!);
    expect(paths.filter((path) => !existsSync(path))).toEqual([]);
  });

  it('names only npm scripts that exist', () => {
    const named = [...text(page).matchAll(/npm (?:run ([\w:-]+)|(start|test)\b)/g)].map((found) => found[1] ?? found[2]!);
    expect(named.filter((script) => !(script in scripts))).toEqual([]);
  });
});

describe('the pages', () => {
  it('name only commands that exist', async () => {
    const groups = new Set(['token', 'explain', 'config']);
    const named = [
      ...pages
        .map(text)
        .join('\n')
        .matchAll(/npx interlane ([a-z-]+)(?: ([a-z-]+))?/g),
    ].map(([, first, second]) => (groups.has(first!) && second !== undefined ? `${first} ${second}` : first!));
    expect(named.length).toBeGreaterThan(10);
    const sink = () => new Writable({ write: (_chunk, _encoding, done) => done() });
    for (const words of new Set(named)) {
      const terminal = { argv: [...words.split(' '), '--help'], env: {}, home: '/', stdout: sink(), stderr: sink() };
      expect([words, await run(terminal as unknown as Terminal)]).toEqual([words, 0]);
    }
  });

  it('are checked at all: links, paths and scripts are found', () => {
    const all = pages.map(text).join('\n');
    expect(all.match(/\]\(/g)!.length).toBeGreaterThan(4);
    expect(all.match(/`src\/[\w./-]+`/g)!.length).toBeGreaterThan(10);
  });

  it('show sample configs that load without a warning', () => {
    const samples = [...text('README.md').matchAll(/```json5\n([\s\S]*?)```/g)].map((found) => found[1]!);
    expect(samples).toHaveLength(2);
    for (const sample of samples)
      expect(
        makeSetup(readConfig(sample, 'README.md', { ANTHROPIC_API_KEY: 'x' }), 1, { stateDir: '/nowhere', found: undefined }).warnings,
      ).toEqual([]);
  });

  it('describe continuous integration that runs what the README says', () => {
    expect(text('README.md')).toContain('npm install && npm test');
    expect(text('.ci/run')).toContain('npm install && npm test');
  });
});
