// The import directions of docs/design.md, read from the real imports; the linter's rules are made from the same table.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { describe, expect, it } from 'vitest';
import lint from '../oxlint.config.ts';
import { bannedFor, filesOf, tiers } from './layers.ts';

const tierOf = (part: string) => tiers.findIndex((tier) => tier.includes(part));
const partOf = (file: string) => file.split('/')[0]!;

const sources = readdirSync('src', { recursive: true, encoding: 'utf8' }).filter(
  (file) => file.endsWith('.ts') && !file.endsWith('.test.ts'),
);
const imports = sources.flatMap((file) =>
  importsOf(readFileSync(join('src', file), 'utf8')).map((from) => ({ file, from, lazy: from.lazy })),
);

function importsOf(text: string): { path: string; lazy: boolean }[] {
  const code = text.replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, '');
  const fixed = [...code.matchAll(/^(?:import|export)\s(?:[^;]*?\sfrom\s)?'([^']+)'/gm)].map((found) => ({ path: found[1]!, lazy: false }));
  const lazy = [...code.matchAll(/\bimport\('([^']+)'\)/g)].map((found) => ({ path: found[1]!, lazy: true }));
  return [...fixed, ...lazy];
}

const target = (file: string, path: string) => normalize(join(dirname(file), path));
const inside = imports.filter(({ from }) => from.path.startsWith('.'));

describe('the layout', () => {
  it('is read at all: files, imports and folders are found', () => {
    expect(sources.length).toBeGreaterThan(20);
    expect(inside.length).toBeGreaterThan(60);
    expect(inside.every(({ file, from }) => existsSync(join('src', target(file, from.path))))).toBe(true);
  });

  it('has no folder or file that the table does not know', () => {
    const known = new Set([...tiers.flat(), 'index.ts']);
    expect([...new Set(sources.map(partOf))].filter((part) => !known.has(part))).toEqual([]);
  });

  it('lets imports go one way only', () => {
    const wrong = inside.filter(({ file, from }) => {
      const importer = partOf(file);
      const imported = partOf(target(file, from.path));
      if (importer === 'index.ts' || importer === imported) return false;
      return tierOf(imported) >= tierOf(importer);
    });
    expect(wrong.map(({ file, from }) => `${file} imports ${from.path}`)).toEqual([]);
  });

  it('loads the gateway from the command line lazily, and only to start it', () => {
    const users = inside.filter(({ file, from }) => partOf(file) === 'cli' && ['gateway.ts', 'start.ts'].includes(target(file, from.path)));
    expect(users.map(({ file, lazy }) => `${file} ${lazy ? 'lazy' : 'eager'}`).toSorted()).toEqual(['cli/demo.ts lazy', 'cli/up.ts lazy']);
  });

  it('keeps rules free of input, output, time and chance', () => {
    const allowed = new Set(['croner', 're2js', 'zod', 'node:crypto']);
    const outside = imports.filter(({ file, from }) => partOf(file) === 'rules' && !from.path.startsWith('.') && !allowed.has(from.path));
    expect(outside.map(({ file, from }) => `${file} imports ${from.path}`)).toEqual([]);
    for (const file of sources.filter((name) => partOf(name) === 'rules')) {
      expect(`${file}: ${readFileSync(join('src', file), 'utf8')}`).not.toMatch(
        /Date\.now|new Date\(\)|Math\.random|randomUUID|process\.|setTimeout|await /,
      );
    }
  });

  it('is the same for the linter', () => {
    for (const part of tiers.flat()) {
      const rules = lint.overrides.filter((entry) => entry.files.includes(filesOf(part))).map((entry) => entry.rules);
      const groups = rules.flatMap((rule) => ('no-restricted-imports' in rule ? [rule['no-restricted-imports']] : []));
      expect([part, groups[0]]).toMatchObject([part, ['error', { patterns: [{ group: bannedFor(part) }] }]]);
    }
  });
});

describe('the tests', () => {
  const files = ['test/story', 'test/mcp', 'test/property'].flatMap((folder) =>
    readdirSync(folder, { encoding: 'utf8' })
      .filter((file) => file.endsWith('.ts'))
      .map((file) => ({ file: `${folder}/${file}`, text: readFileSync(join(folder, file), 'utf8') })),
  );

  it('are read at all', () => expect(files.length).toBeGreaterThan(25));

  it('know the inside of a gateway, and its tables, in the harness alone', () => {
    const parts =
      /from '[./]*src\/(gateway|engine\/engine|store\/|delivery\/|events\/|server\/)|\b(gateway|gw)\.(store|engine|bus|outbox|invoker)\b/;
    const sql = /\b(SELECT .* FROM|INSERT INTO|UPDATE \w+ SET|DELETE FROM)\b/;
    expect(files.filter(({ text }) => parts.test(text) || sql.test(text)).map(({ file }) => file)).toEqual([]);
  });
});
