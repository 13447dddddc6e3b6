// A platform in its own process: takes messages over HTTP and writes each one down before it answers.
import { appendFileSync } from 'node:fs';
import { createServer } from 'node:http';

const log = process.argv[2]!;

const server = createServer((request, response) => {
  let body = '';
  request.setEncoding('utf8').on('data', (text: string) => (body += text));
  request.on('end', () => {
    const { id } = JSON.parse(body) as { id: string };
    appendFileSync(log, `${JSON.stringify({ path: request.url, id })}\n`);
    response.end('ok');
  });
});
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  process.stdout.write(`http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}\n`);
});
