// Parameters that several operations share.
import { z } from 'zod';

export const Key = z.string().min(1).max(4096);
export const Id = z.string().min(1).max(256);
export const Label = z.string().trim().min(1).max(512);
/** The most characters of one message. */
export const longestMessage = 1_000_000;
export const Text = z.string().max(longestMessage);
export const Message = Text.refine((text) => text.trim() !== '', 'must not be blank');
export const Life = z.int().min(1);
export const Cursor = z.string().min(1).max(64);
export const TimeoutMs = z.int().min(0).max(86_400_000);
export const agent = { agentId: z.string().min(1).max(64).optional() };
export const none = z.strictObject({}).default({});

/** Fields of the OpenClaw protocol that have no effect here, accepted so that its clients work. */
export const ignored = <N extends string>(...names: N[]) =>
  Object.fromEntries(names.map((name) => [name, z.unknown().optional()])) as Record<N, z.ZodOptional<z.ZodUnknown>>;
