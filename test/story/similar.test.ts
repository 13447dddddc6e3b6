// A reference that found nothing: what it may have meant, among what the caller may see, whatever else there is.
import { describe, expect, it } from 'vitest';
import { testGateway, type ConfigText, type TestGateway } from '../harness/gateway.ts';

const caller = 'agent:ana:main';
const config: ConfigText = {
  agents: { list: [{ id: 'ana', default: true }, { id: 'bo' }] },
  tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
};

async function prepared(more: ConfigText = {}): Promise<TestGateway> {
  const gw = await testGateway({ config: { ...config, ...more }, caller, listen: true });
  await gw.tell('agent:ana:hist1', 'hello', { label: 'Lunch plans' });
  await gw.tell('agent:bo:notes', 'hello', { label: 'Dinner' });
  return gw;
}

const suggested = (error: string) =>
  (/did you mean (.*)\?/.exec(error)?.[1] ?? '').split(/, | or /).map((text) => text.replaceAll('"', ''));
const byTool = async (gw: TestGateway, args: Record<string, unknown>, from = caller) =>
  suggested((await gw.tool<{ error: string }>('label' in args ? 'sessions_send' : 'sessions_history', args, from)).error);
const byOperator = async (gw: TestGateway, sessionKey: string, token?: string) => {
  const answer = await gw.call('chat.history', { sessionKey }, token).catch((error: Error) => error.message);
  return suggested(answer as string);
};
const resolved = async (gw: TestGateway, reference: { label: string } | { sessionId: string }) =>
  suggested((await gw.call('sessions.resolve', reference).catch((error: Error) => error.message)) as string);

describe('a miss suggests', () => {
  it.each([
    ['hist2', ['agent:ana:hist1'], 'a bare key'],
    ['hsit1', ['agent:ana:hist1'], 'letters that changed places'],
    ['xist1', ['agent:ana:hist1'], 'a wrong first letter'],
    ['agent:ana:hist', ['agent:ana:hist1'], 'a full key'],
    ['agent:bo:nots', ['agent:bo:notes'], 'a key of another agent'],
    ['agent:boo:notes', ['agent:bo:notes'], 'a misspelt agent'],
    ['mian', ['agent:ana:main'], 'main'],
    ['lunch plan', ['agent:ana:hist1'], 'the session of a label'],
    ['nothing like it', [''], 'nothing'],
  ])('for %j: %j (%s)', async (written, near) => {
    const gw = await prepared();
    expect(await byTool(gw, { sessionKey: written })).toEqual(near);
    expect(await byOperator(gw, written)).toEqual(near);
  });

  it('similar labels for a label, in any case, of the agent that was named', async () => {
    const gw = await prepared();
    const send = (label: string, agentId?: string) => byTool(gw, { label, message: 'x', ...(agentId && { agentId }) });
    expect(await send('lunch plans')).toEqual(['Lunch plans']);
    expect(await send('Lunch plnas')).toEqual(['Lunch plans']);
    expect(await send('dinner', 'bo')).toEqual(['Dinner']);
    expect(await send('dinner', 'ana')).toEqual(['']);
    expect(await resolved(gw, { label: 'Lunch plnas' })).toEqual(['Lunch plans']);
  });

  it('the id that a misspelt id is', async () => {
    const gw = await prepared();
    const { id } = await gw.rows.session('agent:bo:main');
    const typo = `${id.slice(0, 20)}${id[20] === '0' ? '1' : '0'}${id.slice(21)}`;
    expect(await byTool(gw, { sessionKey: typo })).toEqual([id]);
    expect(await byOperator(gw, typo)).toEqual([id]);
    expect(await resolved(gw, { sessionId: typo })).toEqual([id]);
  });

  it('an old session among thousands of newer ones, without looking through them', async () => {
    const gw = await prepared();
    await gw.rows.addOldSessions(12_000);
    expect(await byTool(gw, { sessionKey: 'hist2' })).toEqual(['agent:ana:hist1']);
    expect(await byOperator(gw, 'xist1')).toEqual(['agent:ana:hist1']);
  });
});

describe('a miss does not suggest', () => {
  it('what the viewer may not see, and hidden sessions do not crowd out what it may', async () => {
    const gw = await prepared({ tools: { sessions: { visibility: 'agent' } } });
    const low = await gw.token('low', { level: 'PUBLIC' });
    expect(await byTool(gw, { sessionKey: 'agent:bo:nots' })).toEqual(['']);
    expect(await byTool(gw, { label: 'dinner', message: 'x' })).toEqual(['']);
    for (let n = 10; n < 40; n++) await gw.tell(`agent:ana:hist${n}`, 'secret', { taint: 3, label: `Lunch plans ${n}` });
    expect(await byTool(gw, { sessionKey: 'hist2' })).toEqual(['agent:ana:hist1']);
    expect(await byTool(gw, { label: 'Lunch plans 1', message: 'x' })).toEqual(['Lunch plans']);
    expect(await byOperator(gw, 'hist2', low)).toEqual(['agent:ana:hist1']);
    expect(await byOperator(gw, 'hist1x', low)).toEqual(['agent:ana:hist1']);
  });

  it('more than its own session and its children where that is all it sees', async () => {
    const gw = await prepared({ tools: { sessions: { visibility: 'tree' } } });
    await gw.rows.setSession('agent:bo:notes', { depth: 1, parent_key: caller });
    expect(await byTool(gw, { sessionKey: 'agent:bo:nots' })).toEqual(['agent:bo:notes']);
    expect(await byTool(gw, { label: 'dinner', message: 'x' })).toEqual(['Dinner']);
    expect(await byTool(gw, { sessionKey: 'hist2' })).toEqual(['']);
    expect(await byTool(gw, { sessionKey: 'mian' })).toEqual(['agent:ana:main']);
  });

  it('a word that names no session, where all direct chats share one', async () => {
    const gw = await testGateway({ config: { ...config, session: { scope: 'global' } }, caller });
    expect(await byTool(gw, { sessionKey: 'globall' })).toEqual(['']);
    expect(await byTool(gw, { sessionKey: 'mian' })).toEqual(['agent:ana:main']);
  });
});
