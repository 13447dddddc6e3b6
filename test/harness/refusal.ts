// A tool's refusal, as a test expects it: its code, and what its sentence must name. How it says it is pinned elsewhere.
import { expect } from 'vitest';

export const refusal = (code: string, ...named: string[]) => ({
  status: 'error',
  code,
  error: expect.stringMatching(new RegExp(named.map((name) => `(?=[^]*${name.replace(/[^\w\s]/g, '\\$&')})`).join(''))) as string,
});
