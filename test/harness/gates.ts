// A tool that stops a turn where a test wants it.
import { z } from 'zod';
import { defineTool, type Tool } from '../../src/tools/define.ts';

export interface Gates {
  tool: Tool;
  /** A call has come to the gate, for the nth time. */
  entered(name: string, nth?: number): Promise<void>;
  /** Lets go whoever is at the gate, and whoever comes later. */
  open(name: string): void;
}

/** A tool whose calls stop until the test lets them go, or until their turn is stopped. */
export function gates(): Gates {
  const made = new Map<string, { entered: number; open: PromiseWithResolvers<void> }>();
  let news = Promise.withResolvers<void>();
  const gate = (name: string) => {
    const found = made.get(name) ?? { entered: 0, open: Promise.withResolvers<void>() };
    made.set(name, found);
    return found;
  };
  const tool = defineTool({
    name: 'gate',
    description: 'Wait until the test goes on.',
    effect: 'pure',
    params: z.strictObject({ name: z.string() }),
    async run({ signal }, { name }) {
      const stopped = Promise.withResolvers<never>();
      signal.addEventListener('abort', () => stopped.reject(signal.reason as Error));
      gate(name).entered++;
      news.resolve();
      news = Promise.withResolvers();
      await Promise.race([gate(name).open.promise, stopped.promise]);
      return { value: 'open' };
    },
  });
  return {
    tool,
    async entered(name, nth = 1) {
      while (gate(name).entered < nth) await news.promise;
    },
    open: (name) => gate(name).open.resolve(),
  };
}
