// The routes and the tools → an OpenAPI 3.1 document. It declares nothing of its own.
import { z } from 'zod';
import { Failure, named, type Route } from '../protocol/http.ts';
import type { Tool } from '../tools/define.ts';

type Json = Record<string, unknown>;

const reference = (name: string) => ({ $ref: `#/components/schemas/${name}` });

export function openApi(version: string, routes: Readonly<Record<string, Route>>, tools: Iterable<Tool>): Json {
  const paths: Record<string, Json> = {};
  for (const [name, route] of Object.entries(routes)) {
    const [method, path] = name.split(' ') as [string, string];
    paths[path] = { ...paths[path], [method.toLowerCase()]: operation(name, path, route) };
  }
  // Each tool by its name, with its own arguments.
  const any = routes['POST /tools/{name}'];
  for (const tool of any ? tools : []) {
    const path = `/tools/${encodeURIComponent(tool.name)}`;
    paths[path] = { post: operation(`POST ${path}`, path, { ...any!, about: tool.description, body: tool.params }) };
  }
  return {
    openapi: '3.1.0',
    info: { title: 'Interlane', version, description: 'Sessions of AI agents: read, follow, speak, call tools.' },
    paths,
    components: {
      schemas: namedSchemas(),
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer' },
        cookie: { type: 'apiKey', in: 'cookie', name: 'interlane' },
      },
    },
  };
}

function operation(name: string, path: string, route: Route): Json {
  const { scope, about, query, body, idempotent, answers, streams } = route;
  const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => ({ name, in: 'path', required: true, schema: { type: 'string' } }));
  const key = { name: 'Idempotency-Key', in: 'header', schema: { type: 'string', maxLength: 256 } };
  const last = { name: 'Last-Event-ID', in: 'header', schema: { type: 'string' } };
  const parameters = [...inPath, ...(query ? inQuery(query) : []), ...(idempotent ? [key] : []), ...(streams ? [last] : [])];
  const closed = scope !== 'none';
  return {
    operationId: name
      .replaceAll(/[^A-Za-z0-9]+/g, '_')
      .replaceAll(/^_+|_+$/g, '')
      .toLowerCase(),
    summary: about,
    ...(parameters.length > 0 ? { parameters } : {}),
    ...(body ? { requestBody: { required: true, content: { 'application/json': { schema: schemaOf(body, 'input') } } } } : {}),
    responses: {
      ...Object.fromEntries(Object.entries(answers).map(([status, answer]) => [status, response(answer, streams && status === '200')])),
      ...(closed ? { default: response(Failure) } : {}),
    },
    ...(closed ? { security: [{ bearer: [] }, { cookie: [] }], 'x-scope': scope } : { security: [] }),
  };
}

function inQuery(query: z.ZodObject): Json[] {
  const { properties = {}, required = [] } = schemaOf(query, 'input') as { properties?: Record<string, Json>; required?: string[] };
  return Object.entries(properties).map(([name, { description, ...schema }]) => ({
    name,
    in: 'query',
    required: required.includes(name),
    ...(description === undefined ? {} : { description }),
    schema,
    ...(schema['type'] === 'array' ? { style: 'form', explode: false } : {}),
  }));
}

function response(answer: Route['answers'][number], streams?: boolean): Json {
  if (typeof answer === 'string') return { description: answer, content: { [answer]: { schema: { type: 'string' } } } };
  const name = Object.entries(named).find(([, schema]) => schema === answer)?.[0];
  return {
    description: name ?? 'JSON',
    content: {
      'application/json': { schema: name === undefined ? schemaOf(answer, 'output') : reference(name) },
      ...(streams ? { 'text/event-stream': { schema: { type: 'string' } } } : {}),
    },
  };
}

function schemaOf(schema: z.ZodType, io: 'input' | 'output'): Json {
  return plain(z.toJSONSchema(schema, { io, unrepresentable: 'any', override: io === 'output' ? opened : unmarked }));
}

function namedSchemas(): Json {
  const registry = z.registry<{ id: string }>();
  for (const [id, schema] of Object.entries(named)) registry.add(schema, { id });
  const { schemas } = z.toJSONSchema(registry, { uri: (id) => reference(id).$ref, override: opened });
  return Object.fromEntries(Object.entries(schemas).map(([id, schema]) => [id, plain(schema)]));
}

/** Answers may gain fields, and a client that validates them by this document must not break then. */
const opened = ({ jsonSchema }: { jsonSchema: Json }) => void delete jsonSchema['additionalProperties'];

/** Removes the notes of our own tools, which are no words of JSON Schema. */
const unmarked = ({ jsonSchema }: { jsonSchema: Json }) => {
  delete jsonSchema['hidden'];
  delete jsonSchema['needed'];
};

const plain = (schema: Json): Json => Object.fromEntries(Object.entries(schema).filter(([name]) => name !== '$schema' && name !== '$id'));
