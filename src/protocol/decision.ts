// A decision: ALLOW, BLOCK or REDACT, with every rule that was asked, in order, and its reason.

/** `NOTE` is a rule that had nothing to say here, with why. */
export interface RuleTrace {
  rule: string;
  effect: 'ALLOW' | 'BLOCK' | 'REDACT' | 'NOTE';
  why: string;
}

export type Effect = 'ALLOW' | 'BLOCK' | 'REDACT';

/** An answer in one line, the facts behind it, and the rules in the order they were asked. */
export interface Explanation {
  answer: string;
  facts: Record<string, string | number | boolean | undefined>;
  rules: RuleTrace[];
}
