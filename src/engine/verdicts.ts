// Verdicts of text patterns, computed before the transaction that needs them: a body finds the verdict ready, or is undone, waits for it
// outside, and runs again. So no transaction searches a text, and a body that meets another policy than its verdict gets a new one.
import { Worker } from 'node:worker_threads';
import type { HookName } from '../protocol/labels.ts';
import type { World } from '../rules/decide.ts';
import { findText, searchOf, type FindText, type Policy } from '../rules/hooks.ts';
import type { Found, TextForm } from '../rules/text-patterns.ts';
import { Unready, type Store } from '../store/contract.ts';

/** Above this size a thread searches the text, and above this many characters times patterns. */
const longText = 65_536;
const muchWork = 8 * longText;

export interface TextJob {
  id: number;
  patterns: (string | undefined)[];
  text: string;
  form: TextForm;
}

interface Question {
  policy: Policy;
  hook: HookName;
  text: string;
}

/** A verdict that some work uses. */
interface Verdict extends Question {
  found: readonly Found[];
  users: number;
}

class VerdictMissing extends Unready {
  readonly question: Question;

  constructor(question: Question) {
    super(`the text at ${question.hook} was not searched yet`);
    this.question = question;
  }
}

export class Verdicts {
  private readonly current: () => { world: World };
  private readonly ready = new Map<string, Verdict[]>();
  private thread: TextThread | undefined;
  private closed = false;

  constructor(current: () => { world: World }) {
    this.current = current;
  }

  /** The gateway's worlds use this one: it answers from what is ready, and never searches. */
  readonly find: FindText = (policy, hook, text) => {
    if (!searchOf(policy, hook)) return [];
    const verdict = this.verdictOf({ policy, hook, text });
    if (!verdict) throw new VerdictMissing({ policy, hook, text });
    return verdict.found;
  };

  /** Runs work that asks for verdicts, again for each one that was missing. */
  async run<R>(work: () => R | Promise<R>, texts: { hook: HookName; text: string }[] = []): Promise<R> {
    const used: Verdict[] = [];
    try {
      const { policy } = this.current().world;
      for (const { hook, text } of texts) if (searchOf(policy, hook)) used.push(await this.use({ policy, hook, text }));
      for (;;) {
        try {
          return await work();
        } catch (thrown) {
          if (!(thrown instanceof VerdictMissing)) throw thrown;
          used.push(await this.use(thrown.question));
        }
      }
    } finally {
      for (const verdict of used) this.release(verdict);
    }
  }

  /** The store for bodies that evaluate policy. */
  over(store: Store): Store {
    return {
      write: (command, args, options) => this.run(() => store.write(command, args, options), command.texts?.(args)),
      read: (query, args, pace) => this.run(() => store.read(query, args, pace)),
      load: () => store.load(),
      follow: (listener) => store.follow(listener),
      close: () => store.close(),
    };
  }

  async close(): Promise<void> {
    this.closed = true;
    await this.thread?.close();
  }

  private verdictOf({ policy, hook, text }: Question): Verdict | undefined {
    return this.ready.get(text)?.find((verdict) => verdict.policy === policy && verdict.hook === hook);
  }

  private async use(question: Question): Promise<Verdict> {
    const found = this.verdictOf(question)?.found ?? (await this.search(question));
    const known = this.verdictOf(question);
    if (known) {
      known.users++;
      return known;
    }
    const verdict = { ...question, found, users: 1 };
    this.ready.set(question.text, [...(this.ready.get(question.text) ?? []), verdict]);
    return verdict;
  }

  private release(verdict: Verdict): void {
    if (--verdict.users > 0) return;
    const rest = this.ready.get(verdict.text)!.filter((other) => other !== verdict);
    if (rest.length > 0) this.ready.set(verdict.text, rest);
    else this.ready.delete(verdict.text);
  }

  private async search({ policy, hook, text }: Question): Promise<readonly Found[]> {
    const { patterns, form } = searchOf(policy, hook)!;
    // Short strings cost more than their length.
    const work = text.length * patterns.length * (form === 'message' ? 1 : 4);
    if (text.length <= longText && work <= muchWork) return findText(policy, hook, text);
    if (this.closed) return patterns.map(() => ({ failed: 'the gateway is stopping' }));
    if (!this.thread?.alive) this.thread = new TextThread();
    return this.thread.search({ patterns: patterns.map((pattern) => pattern?.pattern()), text, form });
  }
}

/** One thread, from the first long text on. A process may end while it is idle. */
class TextThread {
  alive = true;
  private readonly worker: Worker;
  private readonly jobs = new Map<number, { patterns: number; answer(found: Found[]): void }>();
  private last = 0;

  constructor() {
    const file = import.meta.url.endsWith('.ts') ? './text-worker.ts' : './text-worker.js';
    this.worker = new Worker(new URL(file, import.meta.url));
    this.worker.unref();
    this.worker.on('message', ({ id, found }: { id: number; found: Found[] }) => {
      this.jobs.get(id)?.answer(found);
      this.jobs.delete(id);
      if (this.jobs.size === 0) this.worker.unref();
    });
    this.worker.on('error', (error) => this.end(error.message));
    this.worker.on('exit', () => this.end('the thread that searches texts has stopped'));
  }

  search(job: Omit<TextJob, 'id'>): Promise<Found[]> {
    return new Promise((answer) => {
      const id = ++this.last;
      this.jobs.set(id, { patterns: job.patterns.length, answer });
      this.worker.ref();
      this.worker.postMessage({ id, ...job });
    });
  }

  async close(): Promise<void> {
    await this.worker.terminate();
  }

  /** A text that was not searched must not pass. */
  private end(failed: string): void {
    this.alive = false;
    for (const { patterns, answer } of this.jobs.values()) answer(Array.from({ length: patterns }, () => ({ failed })));
    this.jobs.clear();
  }
}
