// The mock MCP server as a child process: `node mcp-child.ts <how> <log>`.
import { appendFileSync } from 'node:fs';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { toolServer } from './mcp-tools.ts';

const [how, log] = process.argv.slice(2);
if (log !== undefined) appendFileSync(log, `start ${process.pid}\n`);
if (how === 'broken') {
  process.stderr.write('no such database; API_KEY=hunter2 "token": hunter3\n');
  process.exit(3);
}
if (how === 'deaf') {
  // Reads nothing, says nothing, and does not go when asked to.
  process.on('SIGTERM', () => {});
  setInterval(() => {}, 1_000);
} else serveStdio(() => toolServer(log));
