import { describe, expect, it } from 'vitest';
import { routes } from '../protocol/http.ts';
import type { SearchIndex } from '../store/search.ts';
import { builtInTools } from '../tools/all.ts';
import { openApi } from './openapi.ts';

const tools = builtInTools({ search: {} as SearchIndex });
type Json = Record<string, unknown>;
const document = JSON.parse(JSON.stringify(openApi('1.2.3', routes, tools))) as {
  openapi: string;
  paths: Record<string, Record<string, { operationId: string; responses: Json; parameters?: { name: string; in: string }[] }>>;
  components: { schemas: Record<string, Json> };
};
const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({ name: `${method.toUpperCase()} ${path}`, path, operation })),
);

function* refs(value: unknown): Generator<string> {
  if (typeof value !== 'object' || value === null) return;
  for (const [key, inner] of Object.entries(value)) {
    if (key === '$ref') yield inner as string;
    else yield* refs(inner);
  }
}

describe('the OpenAPI document', () => {
  it('is of version 3.1 and has every route of the table and every tool, once', () => {
    expect(document.openapi).toBe('3.1.0');
    expect(operations.map(({ name }) => name).toSorted()).toEqual(
      [...Object.keys(routes), ...tools.map(({ name }) => `POST /tools/${name}`)].toSorted(),
    );
    expect(new Set(operations.map(({ operation }) => operation.operationId)).size).toBe(operations.length);
  });

  it('refers only to what it holds', () => {
    const all = [...refs(document)];
    expect(all.length).toBeGreaterThan(10);
    const known = new Set(Object.keys(document.components.schemas).map((name) => `#/components/schemas/${name}`));
    expect(all.filter((ref) => !known.has(ref))).toEqual([]);
  });

  it('names every place in a path, and says what each operation answers', () => {
    for (const { path, operation } of operations) {
      const places = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
      expect((operation.parameters ?? []).filter((one) => one.in === 'path').map(({ name }) => name)).toEqual(places);
      expect(Object.keys(operation.responses).length).toBeGreaterThan(0);
    }
  });
});
