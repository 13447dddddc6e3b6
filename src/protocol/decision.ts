// A decision: ALLOW, BLOCK or REDACT, with every rule that was asked, in order, and its reason.
import { z } from 'zod';

/** `NOTE` is a rule that had nothing to say here, with why. */
const RuleTrace = z.object({ rule: z.string(), effect: z.enum(['ALLOW', 'BLOCK', 'REDACT', 'NOTE']), why: z.string() });
export type RuleTrace = z.infer<typeof RuleTrace>;

export type Effect = 'ALLOW' | 'BLOCK' | 'REDACT';

/** An answer in one line, the facts behind it, and the rules in the order they were asked. */
export const Explanation = z.object({
  answer: z.string(),
  facts: z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.undefined()])),
  rules: z.array(RuleTrace),
});
export type Explanation = z.infer<typeof Explanation>;
