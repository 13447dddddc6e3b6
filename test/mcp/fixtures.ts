// The things the conformance suite asks for by name, mounted beside a session's own tools so that our real stack is what it tests.
import { completable, inputRequired, ResourceTemplate, type McpServer, type ServerContext } from '@modelcontextprotocol/server';
import { z } from 'zod';

/** One red pixel, and a WAV file without a sound. */
const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
const wav = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=';

const text = (words: string) => ({ type: 'text' as const, text: words });
const image = { type: 'image' as const, data: png, mimeType: 'image/png' };
const embedded = (uri: string, mimeType: string, words: string) => ({
  type: 'resource' as const,
  resource: { uri, mimeType, text: words },
});

export function mountFixtures(server: McpServer): void {
  server.server.registerCapabilities({ logging: {}, completions: {}, prompts: { listChanged: false } });
  mountTools(server);
  mountResources(server);
  mountPrompts(server);
}

function mountTools(server: McpServer): void {
  const contents = {
    test_simple_text: [text('This is a simple text response for testing.')],
    test_image_content: [image],
    test_audio_content: [{ type: 'audio' as const, data: wav, mimeType: 'audio/wav' }],
    test_embedded_resource: [embedded('test://embedded-resource', 'text/plain', 'This is an embedded resource content.')],
    test_multiple_content_types: [
      text('Multiple content types test:'),
      image,
      embedded('test://mixed-content-resource', 'application/json', '{"test":"data","value":123}'),
    ],
  };
  for (const [name, content] of Object.entries(contents)) server.registerTool(name, { description: name }, () => ({ content }));
  server.registerTool('test_error_handling', { description: 'fails' }, () => {
    throw new Error('This tool intentionally returns an error for testing');
  });
  server.registerTool('test_tool_with_logging', { description: 'logs three times' }, async ({ mcpReq }) => {
    for (const words of ['started', 'processing', 'completed']) await mcpReq.log('info', `Tool execution ${words}`);
    return { content: [text('Tool with logging executed successfully')] };
  });
  server.registerTool('test_tool_with_progress', { description: 'reports progress' }, async ({ mcpReq }) => {
    const progressToken = mcpReq._meta?.progressToken;
    if (progressToken !== undefined)
      for (const progress of [0, 50, 100])
        await mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: 100 } });
    return { content: [text('done')] };
  });
  const logging = async ({ mcpReq }: ServerContext) => {
    await mcpReq.log('info', 'a line');
    return { content: [text('logged')] };
  };
  server.registerTool('test_logging_tool', { description: 'logs once' }, logging);
  // Who asks for more than the client can do is refused before it is asked.
  const sample = { messages: [{ role: 'user' as const, content: text('Say hello') }], maxTokens: 10 };
  const question = { message: 'Who?', requestedSchema: { type: 'object' as const, properties: { name: { type: 'string' as const } } } };
  server.registerTool('test_missing_capability', { description: 'needs sampling' }, () =>
    inputRequired({ inputRequests: { sample: inputRequired.createMessage(sample) } }),
  );
  server.registerTool('test_streaming_elicitation', { description: 'needs elicitation' }, () =>
    inputRequired({ inputRequests: { name: inputRequired.elicit(question) } }),
  );
  const region = { type: 'object', properties: { region: { type: 'string', 'x-mcp-header': 'Region' } }, required: ['region'] };
  for (const [name, schema] of Object.entries({ json_schema_2020_12_tool: schema2020, test_custom_headers: region }))
    server.registerTool(name, { description: name, inputSchema: asIs(schema) }, () => ({ content: [text('ok')] }));
}

const schema2020 = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  $defs: { address: { $anchor: 'address', type: 'object', properties: { street: { type: 'string' }, city: { type: 'string' } } } },
  properties: {
    name: { type: 'string' },
    address: { $ref: '#/$defs/address' },
    contactMethod: { enum: ['phone', 'email'] },
    phone: { type: 'string' },
    email: { type: 'string' },
  },
  allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
  if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
  // oxlint-disable-next-line unicorn/no-thenable -- a word of JSON Schema
  then: { required: ['phone'] },
  else: { required: ['email'] },
  additionalProperties: false,
};
const asIs = (schema: Record<string, unknown>) => ({
  '~standard': {
    version: 1 as const,
    vendor: 'test',
    validate: (value: unknown) => ({ value }),
    jsonSchema: { input: () => schema, output: () => schema },
  },
});

function mountResources(server: McpServer): void {
  server.registerResource('static-text', 'test://static-text', { mimeType: 'text/plain' }, ({ href: uri }) => ({
    contents: [{ uri, mimeType: 'text/plain', text: 'This is the content of the static text resource.' }],
  }));
  server.registerResource('static-binary', 'test://static-binary', { mimeType: 'image/png' }, ({ href: uri }) => ({
    contents: [{ uri, mimeType: 'image/png', blob: png }],
  }));
  const template = new ResourceTemplate('test://template/{id}/data', { list: undefined });
  server.registerResource('template', template, { mimeType: 'application/json' }, ({ href: uri }, { id }) => ({
    contents: [{ uri, mimeType: 'application/json', text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${String(id)}` }) }],
  }));
}

function mountPrompts(server: McpServer): void {
  const said = (...contents: (ReturnType<typeof text> | typeof image | ReturnType<typeof embedded>)[]) => ({
    messages: contents.map((content) => ({ role: 'user' as const, content })),
  });
  server.registerPrompt('test_simple_prompt', { description: 'simple' }, () => said(text('This is a simple prompt for testing.')));
  server.registerPrompt(
    'test_prompt_with_arguments',
    { description: 'with arguments', argsSchema: z.object({ arg1: completable(z.string(), () => ['paris', 'park']), arg2: z.string() }) },
    ({ arg1, arg2 }) => said(text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)),
  );
  server.registerPrompt(
    'test_prompt_with_embedded_resource',
    { description: 'with a resource', argsSchema: z.object({ resourceUri: z.string() }) },
    ({ resourceUri }) => said(embedded(resourceUri, 'text/plain', 'Embedded resource content for testing.'), text('Please process it.')),
  );
  server.registerPrompt('test_prompt_with_image', { description: 'with an image' }, () =>
    said(image, text('Please analyze the image above.')),
  );
}
