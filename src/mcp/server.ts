// A caller's tools → an MCP server. HTTP makes one for each request, stdio one for each connection.
import { createMcpHandler, McpServer, type McpHttpHandler } from '@modelcontextprotocol/server';
import { reasonOf } from '../errors.ts';
import { quote, quoteAll, stoppedOutside } from '../wording.ts';
import { inputSchema, type Tool } from '../tools/define.ts';

/** The tools of a caller, and how to call them. */
export interface CallerTools {
  instructions: string;
  tools: Iterable<ToolDefinition>;
  call(call: ToolCall, signal: AbortSignal): Promise<{ text: string; isError: boolean }>;
}

/** A tool as a client sees it. */
export interface ToolDefinition {
  name: string;
  description: string;
  inputSchema: Record<string, unknown>;
  readOnly: boolean;
  /** The tool belongs to an outside server, with unknown effects. */
  openWorld: boolean;
}

interface ToolCall {
  tool: string;
  args: Record<string, unknown>;
  /** The client's key of this call, if any: two calls with the same key act once. */
  idempotencyKey?: string | undefined;
}

/** In `_meta` of `tools/call`. JSON-RPC ids start over with each connection, so they cannot identify a repeated call. */
export const idempotencyMeta = 'interlane/idempotencyKey';

export function mcpServer(version: string, callerTools: CallerTools): McpServer {
  const server = new McpServer(
    { name: 'interlane', title: 'Interlane', version },
    { instructions: callerTools.instructions, capabilities: { tools: { listChanged: false } } },
  );
  for (const { name, description, inputSchema: schema, readOnly, openWorld } of callerTools.tools) {
    const annotations = { readOnlyHint: readOnly, openWorldHint: openWorld };
    server.registerTool(name, { description, inputSchema: asIs(schema), annotations }, async (args, ctx) => {
      const key = ctx.mcpReq._meta?.[idempotencyMeta];
      const idempotencyKey = typeof key === 'string' && key !== '' && key.length <= 256 ? key : undefined;
      const signal = ctx.http?.req ? AbortSignal.any([ctx.mcpReq.signal, ctx.http.req.signal]) : ctx.mcpReq.signal;
      try {
        return resultOf(await callerTools.call({ tool: name, args: args as Record<string, unknown>, idempotencyKey }, signal));
      } catch (thrown) {
        // Any other failure is a bug, and its cause is in the log; the reason of a stop may be returned.
        if (!signal.aborted) throw thrown;
        return resultOf({
          text: JSON.stringify({ status: 'error', error: stoppedOutside(reasonOf(signal.reason)) }),
          isError: true,
        });
      }
    });
  }
  return server;
}

/** Over HTTP, `authInfo` carries the tools of the authenticated caller. The client gets errors of requests, the operator failures of calls. */
export function mcpHandler(version: string, extend: (server: McpServer) => void): McpHttpHandler {
  return createMcpHandler(({ authInfo }) => {
    const server = mcpServer(version, authInfo!.extra!['callerTools'] as CallerTools);
    extend(server);
    return server;
  });
}

/** The text, and the same as structured data for clients that read it. */
function resultOf({ text, isError }: { text: string; isError: boolean }) {
  const content = [{ type: 'text' as const, text }];
  const value = dataOf(text);
  return { content, ...(value === undefined ? {} : { structuredContent: value }), ...(isError ? { isError } : {}) };
}

function dataOf(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

const definitions = new WeakMap<Tool, ToolDefinition>();

/** Made once for each tool, not for each request. */
export function definitionOf(tool: Tool): ToolDefinition {
  let definition = definitions.get(tool);
  if (!definition) {
    const { name, description, effect, schema } = tool;
    definition = {
      name,
      description: quote(description),
      inputSchema: quoteAll(inputSchema(tool)),
      readOnly: effect === 'pure',
      openWorld: schema !== undefined,
    };
    definitions.set(tool, definition);
  }
  return definition;
}

/** No validation here: `tools/invoke.ts` checks the arguments of every caller, so that all get the same error. */
function asIs(schema: Record<string, unknown>) {
  const converted = () => schema;
  return {
    '~standard': {
      version: 1 as const,
      vendor: 'interlane',
      validate: (value: unknown) => ({ value }),
      jsonSchema: { input: converted, output: converted },
    },
  };
}
