// A decision: ALLOW, BLOCK or REDACT, with every rule that was evaluated, in order, and its reason.
import { z } from 'zod';

/** `NOTE`: the rule did not apply, with the reason. */
const RuleTrace = z.object({ rule: z.string(), effect: z.enum(['ALLOW', 'BLOCK', 'REDACT', 'NOTE']), why: z.string() });
export type RuleTrace = z.infer<typeof RuleTrace>;

export type Effect = 'ALLOW' | 'BLOCK' | 'REDACT';

/** An answer in one line, the facts behind it, and the rules in the order of evaluation. */
export const Explanation = z.object({
  answer: z.string(),
  facts: z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.undefined()])),
  rules: z.array(RuleTrace),
});
export type Explanation = z.infer<typeof Explanation>;
