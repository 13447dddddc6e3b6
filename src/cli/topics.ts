// The questions that `interlane explain` answers, each with an example and a schema.
import { z } from 'zod';
import { ExplainAccess, ExplainKey, ExplainRoute, ExplainSend, ExplainTools } from '../protocol/explain.ts';

export const topics = {
  route: {
    about: 'which agent and session a message goes to',
    example: '{"channel":"telegram","peer":{"kind":"direct","id":"42"}}',
    schema: ExplainRoute,
  },
  key: { about: 'what a session key means', example: '{"key":"agent:main:telegram:group:-100:topic:7"}', schema: ExplainKey },
  send: {
    about: "whether a session's text may go to a channel",
    example: '{"session":{"key":"agent:main:discord:group:9"},"text":"hello"}',
    schema: ExplainSend,
  },
  access: {
    about: 'whether one session may list, read, check or send to another',
    example: '{"action":"read","caller":{"key":"agent:main:main"},"target":{"key":"agent:work:main"}}',
    schema: ExplainAccess,
  },
  tools: { about: 'which tools a session gets, and why', example: '{"session":{"key":"agent:main:main"}}', schema: ExplainTools },
} as const;

export type TopicName = keyof typeof topics;

interface SchemaNode {
  properties?: Record<string, SchemaNode>;
  required?: string[];
  enum?: string[];
  type?: string;
}

/** The fields of a question, for the help page. */
export const fieldsOf = (schema: z.ZodType): string[] => fieldsIn(z.toJSONSchema(schema, { io: 'input' }) as SchemaNode, '');

function fieldsIn(node: SchemaNode, prefix: string): string[] {
  return Object.entries(node.properties ?? {}).flatMap(([name, child]) => {
    const inner = fieldsIn(child, `${prefix}${name}.`);
    if (inner.length > 0) return inner;
    const allowed = child.enum ? child.enum.map((word) => `"${word}"`).join(' | ') : (child.type ?? 'text');
    return [
      `${prefix}${name}${node.required?.includes(name) ? '' : '?'}: ${allowed.replace('string', 'text').replace('integer', 'number')}`,
    ];
  });
}
