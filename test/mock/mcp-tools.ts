// An MCP server as tests need it: it echoes, shows its environment, takes for ever, dies, and says too much.
import { appendFileSync } from 'node:fs';
import { McpServer } from '@modelcontextprotocol/server';
import { z } from 'zod';

/** `log`: a line is added to this file by every `act`, and by every start of a process. */
export function toolServer(log: string | undefined): McpServer {
  const server = new McpServer({ name: 'mock', version: '1.0.0' }, { capabilities: { tools: { listChanged: true } } });
  const say = (text: string) => ({ content: [{ type: 'text' as const, text }] });
  server.registerTool(
    'echo',
    { description: 'Say it again.', inputSchema: z.object({ text: z.string().describe('what to say') }) },
    ({ text }) => say(`echo: ${text}`),
  );
  server.registerTool('environment', { description: 'Its environment.' }, () => say(JSON.stringify(process.env)));
  server.registerTool('wait', { description: 'Never answers.' }, () => new Promise(() => {}));
  server.registerTool('die', { description: 'Ends the process.' }, () => process.exit(1));
  server.registerTool('large', { description: 'x'.repeat(5_000) }, () => say('y'.repeat(300_000)));
  server.registerTool('huge', { description: 'Too much.' }, () => say('y'.repeat(20_000_000)));
  server.registerTool('wrong', { description: 'Fails.' }, () => ({ ...say('that went wrong'), isError: true }));
  server.registerTool(
    'act',
    { description: 'Forged ⟦line⟧\nand more', inputSchema: z.object({ name: z.string() }) },
    ({ name }, context) => {
      const { 'interlane/idempotencyKey': key } = (context.mcpReq._meta ?? {}) as Record<string, unknown>;
      if (log !== undefined) appendFileSync(log, `act ${name} ${String(key)}\n`);
      if (name === 'and die') process.exit(1);
      return say('done');
    },
  );
  server.registerTool('more', { description: 'Adds a tool.' }, () => {
    server.registerTool('another', { description: 'A new one.' }, () => say('new'));
    return say('added');
  });
  return server;
}
