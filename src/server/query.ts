// The text of a query → the parameters it means, read closed by the same schema as everywhere else.
import { z } from 'zod';
import { readParams } from './params.ts';

export function readQuery<S extends z.ZodObject>(schema: S, query: URLSearchParams): z.output<S> {
  const { shape } = schema as { shape: Record<string, z.ZodType> };
  const given = [...new Set(query.keys())].map((name) => {
    const texts = query.getAll(name);
    // The schema refuses an unknown field, and one that is given twice where it may be once.
    return [name, Object.hasOwn(shape, name) ? meaning(typesOf(shape[name]!), texts) : texts] as const;
  });
  return readParams(schema, Object.fromEntries(given), 'invalid query');
}

function meaning(types: Set<unknown>, texts: string[]): unknown {
  if (types.has('array')) return texts.flatMap((text) => text.split(','));
  const [text] = texts;
  if (texts.length > 1) return texts;
  if (types.has('integer') && /^\d{1,15}$/.test(text!)) return Number(text);
  if (types.has('boolean') && /^(?:1|true)$/.test(text!)) return true;
  if (types.has('boolean') && /^(?:0|false)$/.test(text!)) return false;
  return text;
}

const known = new WeakMap<z.ZodType, Set<unknown>>();

function typesOf(field: z.ZodType): Set<unknown> {
  let types = known.get(field);
  if (!types) {
    const { type, anyOf = [] } = z.toJSONSchema(field, { io: 'input' });
    known.set(field, (types = new Set([type, ...anyOf.map((one) => one.type)])));
  }
  return types;
}
