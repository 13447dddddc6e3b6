import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { InterlaneError } from '../errors.ts';
import type { WireSession } from '../protocol/result.ts';
import { commands, completeCommand, readCommand, runCommand, type CommandPort } from './commands.ts';

const session = { key: 'agent:main:main', sessionId: 's', createdAt: 0, updatedAt: 0, messageCount: 3 } as WireSession;

/** A session that does as it is told, and remembers it. */
function port(now: Partial<WireSession> = {}): CommandPort & { asked: unknown[] } {
  const asked: unknown[] = [];
  return {
    asked,
    reset: async () => (asked.push('reset'), { ...session, life: 2 }),
    patch: async (settings) => (asked.push(settings), { ...session, ...now }),
    status: async () => ({ ...session, ...now }),
    stop: async () => true,
  };
}

const kindOf = (text: string) => {
  const read = readCommand(text);
  return read.kind === 'command' ? [read.command.name, read.argument] : read.kind;
};

describe('reading a text', () => {
  it.each<[text: string, read: ReturnType<typeof kindOf>, why: string]>([
    ['/new', ['new', ''], 'a command'],
    ['/reset', ['new', ''], 'its other name'],
    ['/NEW  hello\nthere ', ['new', 'hello\nthere'], 'what stands after it, over several lines'],
    ['/model gpt 5', ['model', 'gpt 5'], 'whether that fits is the business of the command'],
    ['/send off', ['send', 'off'], 'a word that it takes'],
    ['/send offf', ['send', 'offf'], 'one word, perhaps misspelt'],
    ['/send off right now', 'message', 'more than the one word that it takes'],
    ['/send off\nand tell me', 'message', 'more lines'],
    ['/think about it', 'message', 'no level'],
    ['hello', 'message', 'no slash'],
    [' /new', 'message', 'a blank before it'],
    ['/', 'message', 'no word'],
    ['//new', 'message', 'no word'],
    ['/etc/hosts is broken', 'message', 'a path'],
    ['/etc/hosts', 'message', 'a path alone'],
    ['/newish idea', 'message', 'another word, and more'],
    ['/newish', 'unknown', 'another word, alone'],
    ['/constructor', 'unknown', 'no word of the language'],
  ])('%j is %j: %s', (text, read) => {
    expect(kindOf(text)).toEqual(read);
  });

  it('takes everything that does not begin with a slash as a message', () => {
    fc.assert(
      fc.property(
        fc.string().filter((text) => !text.startsWith('/')),
        (text) => {
          expect(readCommand(text)).toEqual({ kind: 'message' });
        },
      ),
    );
  });
});

describe('a command', () => {
  const use = async (text: string, owner = true, target = port()) => {
    const read = readCommand(text);
    if (read.kind === 'message') throw new Error('a message');
    return { ...(await runCommand(read, target, { owner })), asked: target.asked };
  };

  it('patches with values that sessions.patch takes, and clears with null', async () => {
    expect((await use('/think XHIGH')).asked).toEqual([{ thinkingLevel: 'xhigh' }]);
    expect((await use('/think default')).asked).toEqual([{ thinkingLevel: null }]);
    expect((await use('/verbose full')).asked).toEqual([{ verboseLevel: 'full' }]);
    expect((await use('/model Some/Model')).asked).toEqual([{ model: 'Some/Model' }]);
    expect((await use('/model default')).asked).toEqual([{ model: null }]);
    expect((await use('/send on')).asked).toEqual([{ sendPolicy: 'allow' }]);
    expect((await use('/send inherit')).asked).toEqual([{ sendPolicy: null }]);
    expect(await use(`/model ${'x'.repeat(257)}`)).toMatchObject({ ok: false, asked: [] });
    expect(await use('/send constructor')).toMatchObject({ ok: false, asked: [] });
  });

  it('shows what is set, and by whom', async () => {
    const chosen = port({ model: 'anthropic/opus', modelSource: 'user' });
    const real = port({
      model: 'anthropic/opus',
      modelSource: 'auto',
      thinkingLevel: 'high',
      thinkingLevelSource: 'user',
      thinkingNote: 'sent as max',
    });
    expect((await use('/model', true, real)).text).toBe('Model: anthropic/opus (from config or auto-detected).');
    expect((await use('/model', true, chosen)).text).toBe('Model: anthropic/opus (set for this session).');
    expect((await use('/think', true, real)).text).toBe('Thinking: high (set for this session). (sent as max)');
  });

  it('tells the status in a few lines', async () => {
    const busy = port({
      status: 'running',
      activeRunIds: ['r1'],
      queuedRuns: 2,
      totalTokens: 1200,
      contextTokens: 200_000,
      usage: { inputTokens: 1000, outputTokens: 200, cost: 0.0123 },
      lastChannel: 'telegram',
      taint: 'INTERNAL',
    });
    expect((await use('/status', true, busy)).text.split('\n')).toEqual([
      'agent:main:main is working, 2 queued (run r1).',
      "Model: the agent's own. Thinking: default. Verbose: default.",
      'Delivery: per config. Channel: telegram. Level: INTERNAL.',
      'Messages: 3, 1200 of 200000 tokens used, $0.0123. Session s, since 1970-01-01 00:00 UTC.',
    ]);
    expect((await use('/status', true, port({ status: 'failed' }))).text).toContain('is idle; the last run: failed.');
  });

  it('for owners does nothing for others', async () => {
    for (const { name } of commands.filter(({ who }) => who === 'owner'))
      expect(await use(`/${name} on`, false)).toEqual({
        ok: false,
        code: 'MISSING_SCOPE',
        text: `/${name} is for owners only.`,
        asked: [],
      });
    expect(commands.filter(({ who }) => who === 'owner').map(({ name }) => name)).toEqual(['new', 'send']);
  });

  it('that is refused answers with the words of the refusal; a bug is not hidden', async () => {
    const failing = (error: Error) => use('/stop', true, { ...port(), stop: () => Promise.reject(error) });
    expect(await failing(new InterlaneError('MISSING_SCOPE', 'token may not; ask for another'))).toMatchObject({
      ok: false,
      code: 'MISSING_SCOPE',
      text: 'Token may not; ask for another.',
    });
    await expect(failing(new TypeError('bug'))).rejects.toThrow('bug');
  });

  it('is listed by /help, with every name', async () => {
    const { text } = await use('/help');
    for (const { name, aliases, about } of commands) {
      for (const one of [name, ...aliases]) expect(text).toContain(`/${one}`);
      expect(text).toContain(about);
    }
  });

  it('is completed, and so are its words', () => {
    expect(completeCommand('/s')).toEqual(['/status', '/send', '/stop']);
    expect(completeCommand('/think m')).toEqual(['/think minimal', '/think medium']);
    expect(completeCommand('hello')).toEqual([]);
    expect(completeCommand('/etc/h')).toEqual([]);
  });
});
