// Operations on guests and tokens.
import { z } from 'zod';
import { Scope } from '../frame.ts';
import { Level, Visibility } from '../labels.ts';
import { TokenView } from '../result.ts';
import { agent, Key, none } from './fields.ts';
import type { Operations } from './operation.ts';

const Named = z.strictObject({ name: z.string().min(1).max(128) });
const Made = z.object({ token: z.string(), view: TokenView });

export const access = {
  'guests.join': {
    scope: 'operator.admin',
    about: 'let an outside harness take part: a session of its own, a token bound to it, and what it may see',
    params: z.strictObject({
      name: z.string().regex(/^[a-z0-9][a-z0-9_-]{0,31}$/, 'must be 1 to 32 of a-z, 0-9, "_" and "-"'),
      ...agent,
      see: z.enum(['tree', 'agent', 'all']).optional(),
      rotate: z.boolean().optional(),
    }),
    result: z.object({
      key: z.string(),
      sessionId: z.string(),
      created: z.boolean(),
      /** The visibility of its tools. */
      see: Visibility,
      token: z.string(),
      tokenName: z.string(),
      /** Where it connects. */
      url: z.string(),
      /** The sentence to paste into the harness. */
      sentence: z.string(),
    }),
  },

  'tokens.list': {
    scope: 'operator.admin',
    about: 'the tokens, without their secrets',
    params: none,
    result: z.object({ tokens: z.array(TokenView) }),
  },
  'tokens.create': {
    scope: 'operator.admin',
    about: 'make a token; its secret is shown once',
    params: z.strictObject({
      name: z.string().regex(/^[a-z0-9][a-z0-9_.-]{0,63}$/, 'must be 1 to 64 of a-z, 0-9, ".", "_" and "-"'),
      scopes: z.array(Scope).min(1).optional(),
      level: Level.optional(),
      sessionKey: Key.optional(),
      /** It never outlives the token that makes it. */
      expiresInSeconds: z
        .int()
        .min(1)
        .max(3_660 * 86_400)
        .optional(),
    }),
    result: Made,
  },
  'tokens.signIn': {
    scope: 'operator.admin',
    about: 'a link that signs a browser in; it works once, for ten minutes',
    params: none,
    result: z.object({ url: z.string(), expiresAt: z.int() }),
  },
  'tokens.rotate': {
    scope: 'operator.admin',
    about: 'give a token a new secret; the old one and its connections end at once',
    params: Named,
    result: Made,
  },
  'tokens.revoke': {
    scope: 'operator.admin',
    about: 'end a token and its connections at once',
    params: Named,
    result: z.object({ revoked: z.boolean(), name: z.string() }),
  },
} as const satisfies Operations;
