// Searches text patterns in a thread of its own: text and patterns in, places out.
import { parentPort } from 'node:worker_threads';
import { RE2JS } from 're2js';
import { findPatterns } from '../rules/text-patterns.ts';
import type { TextJob } from './verdicts.ts';

const compiled = new Map<string, RE2JS>();

function compile(pattern: string | undefined): RE2JS | undefined {
  if (pattern === undefined) return undefined;
  const known = compiled.get(pattern) ?? RE2JS.compile(pattern);
  compiled.set(pattern, known);
  return known;
}

parentPort!.on('message', ({ id, patterns, text, form }: TextJob) => {
  parentPort!.postMessage({ id, found: findPatterns(patterns.map(compile), text, form) });
});
