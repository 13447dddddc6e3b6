// Transcripts as files: an archive and an export write them, rows name them, and a deletion takes them away.
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { testGateway, type TestGateway } from '../harness/gateway.ts';
import { started } from '../harness/terminal.ts';

const key = 'agent:main:notes';
const linesOf = (file: string) =>
  readFileSync(file, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as { type: string; id: string; text?: string });
const described = async (gw: TestGateway, named = key) => (await gw.call('sessions.describe', { key: named })).session!;
const pathOf = (gw: TestGateway, id: string) => join(gw.stateDir, 'transcripts', `${id}.jsonl`);

it('an archived session has its transcript in a private file, and its row names it', async () => {
  const gw = await testGateway({ listen: true });
  await gw.tell(key, 'remember this');
  const id = '0b8e4943-56ab-4e53-bdac-be58565d18c3';
  await gw.rows.setSession(key, { id });
  expect(await described(gw)).not.toHaveProperty('transcriptPath');
  await gw.closeSession(key, 'archived');
  const file = pathOf(gw, id);
  await gw.until(() => existsSync(file));
  expect(await described(gw)).toMatchObject({ archived: true, transcriptPath: file });
  expect(linesOf(file)).toMatchObject([
    { type: 'interlane-export' },
    { type: 'session', id },
    { type: 'entry', text: 'remember this' },
    { type: 'entry', text: 're: remember this' },
  ]);
  expect([file, join(gw.stateDir, 'transcripts')].map((path) => statSync(path).mode & 0o777)).toEqual([0o600, 0o700]);
  // It goes with the session.
  await gw.call('sessions.delete', { key });
  await gw.clock.advance(3_600_000);
  await gw.until(() => !existsSync(file));
});

it('an export writes the transcript of every life; rows of every transport name it, and it can be imported', async () => {
  const gw = await testGateway({ listen: true, caller: 'agent:main:main', config: { tools: { sessions: { visibility: 'agent' } } } });
  await gw.tell(key, 'first');
  await gw.reset(key);
  await gw.tell(key, 'second');
  const [old, now] = (await gw.call('sessions.lives', { key })).lives.map(({ sessionId }) => sessionId).toReversed();
  const out = join(gw.stateDir, 'all.jsonl');
  expect(await started(['export', out, '--state-dir', gw.stateDir]).finished).toMatchObject({ status: 0 });
  expect(readdirSync(join(gw.stateDir, 'transcripts')).toSorted()).toEqual(
    (await gw.rows.sessions({}, 'id')).map(({ id }) => `${encodeURIComponent(id)}.jsonl`).toSorted(),
  );
  const { sessions } = await gw.tool<{ sessions: { key: string; transcriptPath?: string }[] }>('sessions_list');
  const page = JSON.parse((await gw.http('/sessions')).text) as { sessions: { key: string; transcriptPath?: string }[] };
  for (const row of [await described(gw), ...[sessions, page.sessions].map((rows) => rows.find((one) => one.key === key)!)])
    expect(row.transcriptPath).toBe(pathOf(gw, now!));
  const { transcriptPath } = await described(gw, old);
  expect(linesOf(transcriptPath!).map(({ text }) => text)).toEqual([undefined, undefined, 'first', 're: first']);

  const other = await testGateway();
  await other.close();
  const imported = await started(['import', transcriptPath!, '--state-dir', other.stateDir]).finished;
  expect(imported).toMatchObject({ status: 0, stdout: expect.stringContaining('Imported 1 session') as string });
});

it('an id cannot lead out of the directory', async () => {
  const gw = await testGateway({ listen: true });
  await gw.tell(key, 'hello');
  await gw.rows.setSession(key, { id: '../../evil/.x' });
  await gw.closeSession(key, 'archived');
  const file = pathOf(gw, '%2E%2E%2F%2E%2E%2Fevil%2F%2Ex');
  await gw.until(() => existsSync(file));
  expect(await described(gw)).toMatchObject({ transcriptPath: file });
});
