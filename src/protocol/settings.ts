// The settings that rules read, each declared once: config/ composes them into the whole schema, rules/ uses their types.
import { RE2JS } from 're2js';
import { z } from 'zod';
import { platformId } from './ids.ts';
import { grammarWords, reservedKeys } from './key-words.ts';
import { ChatTypeWord, HookName, Level, ThinkingLevel, type Visibility } from './labels.ts';

export const nonBlank = z.string().regex(/\S/, 'must not be blank');
/** `telegram:111`: a channel and an id there. */
export const ChannelId = z.string().regex(/^[^:]*[^:\s][^:]*:[\s\S]*\S/, 'must be "<channel>:<id>", for example "telegram:111"');

const atMost = (length: number) => nonBlank.max(length, `must be at most ${length} characters`);

/** A record whose names are platform names: two names that differ only in case or outer space are the same. */
export function byName<V extends z.ZodType>(value: V) {
  return z.record(z.string(), value).superRefine((record, context) => {
    const seen = new Map<string, string>();
    for (const name of Object.keys(record)) {
      const id = platformId(name);
      const earlier = seen.get(id);
      if (id === '') context.addIssue({ code: 'custom', path: [name], message: 'must not have a blank name' });
      else if (earlier !== undefined)
        context.addIssue({
          code: 'custom',
          path: [name],
          message: `must differ from ${JSON.stringify(earlier)} in more than case and outer space`,
        });
      seen.set(id, name);
    }
  });
}

/** A pattern with `*` for any text, or a plain word. Never a regular expression: matching stays linear. */
const Glob = atMost(256);

/** A regular expression in RE2 syntax, which stays fast on any text. */
const Pattern = z
  .string()
  .min(1, 'must not be empty')
  .max(1024, 'must be at most 1024 characters')
  .superRefine((pattern, context) => {
    try {
      RE2JS.compile(pattern);
    } catch (thrown) {
      // The rest of the message repeats the pattern, which may contain a value from the environment.
      const reason = (thrown instanceof Error ? thrown.message : String(thrown))
        .replace(/^error parsing regexp: /, '')
        .replace(/: `[\s\S]*$/, '');
      context.addIssue({ code: 'custom', message: `must be a pattern in RE2 syntax: ${reason}` });
    }
  });

function matchesNothing(pattern: string | undefined): boolean {
  try {
    return pattern !== undefined && RE2JS.compile(pattern).test('');
  } catch {
    return false; // the pattern's own check has already reported the problem
  }
}

/** Which tools: names with `*`. */
export function toolList(allow: string, deny: string) {
  return z.strictObject({
    allow: z.array(Glob).optional().meta({ description: allow }),
    deny: z.array(Glob).default([]).meta({ description: deny }),
  });
}
export type ToolList = z.infer<ReturnType<typeof toolList>>;

// session.* ----------------------------------------------------------------------------------------------------------

export const SessionScope = z.enum(['per-sender', 'global']);
export const DmScope = z.enum(['main', 'per-peer', 'per-channel-peer', 'per-account-channel-peer']);
export type DmScope = z.infer<typeof DmScope>;

export const MainKey = z
  .string()
  .regex(/^[a-z0-9_-]{1,64}$/, 'must be 1 to 64 of a-z, 0-9, "_" and "-"')
  .refine(
    (name) => !grammarWords.has(name) && !reservedKeys.has(name) && !name.startsWith('node-'),
    'must not be a word of the session key grammar',
  );

export const IdentityLinks = byName(z.array(ChannelId));

const SendAction = z.enum(['allow', 'deny']);
export type SendAction = z.infer<typeof SendAction>;
export const SendPolicyRule = z.strictObject({
  match: z
    .strictObject({
      channel: nonBlank.optional().meta({ description: 'channel name' }),
      surface: nonBlank.optional().meta({ description: 'old name of `channel`' }),
      chatType: ChatTypeWord.optional().meta({ description: '`dm` is read as `direct`' }),
      keyPrefix: nonBlank.optional().meta({ description: 'start of the store key or of the request key, any case' }),
    })
    .refine(
      (match) => !(match.channel && match.surface) || platformId(match.channel) === platformId(match.surface),
      'must not give `channel` and its old name `surface` different values',
    )
    .default({})
    .meta({ description: 'all fields given must match; an empty match is every session' }),
  action: SendAction.meta({ description: 'any matching deny beats any matching allow' }),
});
export type SendPolicyRule = z.infer<typeof SendPolicyRule>;
export const SendPolicy = z.strictObject({
  rules: z.array(SendPolicyRule).default([]).meta({ description: 'no rules by default' }),
  default: SendAction.default('allow').meta({ description: 'answers go out unless a rule says otherwise' }),
});
export type SendPolicy = z.infer<typeof SendPolicy>;

// agents.* -----------------------------------------------------------------------------------------------------------

export const SandboxMode = z.enum(['off', 'non-main', 'all']);
export type SandboxMode = z.infer<typeof SandboxMode>;
export const SessionToolsVisibility = z.enum(['spawned', 'all']);
export const AllowAgents = z.array(nonBlank);

const AgentSubagents = z.strictObject({
  allowAgents: AllowAgents.optional().meta({ description: 'agents this one may spawn; `["*"]` is any, unset takes the default' }),
  model: nonBlank.optional().meta({ description: "model of this agent's children", notYet: true }),
  thinking: ThinkingLevel.optional().meta({ description: "thinking level of this agent's children", notYet: true }),
});
const AgentSandbox = z.strictObject({
  mode: SandboxMode.optional().meta({ description: 'overrides `agents.defaults.sandbox.mode`' }),
  sessionToolsVisibility: SessionToolsVisibility.optional().meta({
    description: 'overrides `agents.defaults.sandbox.sessionToolsVisibility`',
  }),
});
export const AgentEntry = z.strictObject({
  id: atMost(256).meta({ description: 'its name in keys; characters outside a-z, 0-9, "_" and "-" become "-"' }),
  default: z.boolean().optional().meta({ description: 'gets messages without a binding; by default the first agent listed' }),
  name: nonBlank.optional().meta({ description: 'the name for people, instead of the id' }),
  instructions: z.string().max(100_000).optional().meta({ description: 'instructions for the agent at the start of every conversation' }),
  model: nonBlank.optional().meta({ description: 'overrides `agents.defaults.model`' }),
  thinking: ThinkingLevel.optional().meta({ description: 'overrides `agents.defaults.thinking`' }),
  runtime: z.enum(['model', 'scripted']).optional().meta({ description: 'its turns are answered by a model, or by the scripted model' }),
  workspace: z
    .string()
    .regex(/^(\/|~\/|[A-Za-z]:[\\/])/, 'must be a full path, or one that begins with "~/"')
    .optional()
    .meta({ description: 'directory of the files of its main session; other sessions have one of their own in the state directory' }),
  clearance: Level.optional().meta({ description: 'overrides `agents.defaults.clearance`' }),
  tools: toolList('only these tools, by name with `*`; without it all', 'never these tools; beats allow').prefault({}),
  subagents: AgentSubagents.prefault({}),
  sandbox: AgentSandbox.prefault({}),
});
export type AgentEntry = z.infer<typeof AgentEntry>;

// tools.*, bindings, policy ------------------------------------------------------------------------------------------

export const AgentToAgent = z.strictObject({
  enabled: z.boolean().default(false).meta({ description: 'agents do not reach each other until you enable it' }),
  allow: z.array(Glob).default([]).meta({ description: 'agent ids with `*`; both sides must match one; empty is every agent' }),
});
export type AgentToAgent = z.infer<typeof AgentToAgent>;

const Peer = z.strictObject({
  kind: ChatTypeWord.meta({ description: '`dm` is read as `direct`' }),
  id: nonBlank.meta({ description: "the platform's id of the chat or sender" }),
});
export const Binding = z.strictObject({
  agentId: nonBlank.meta({ description: 'who answers' }),
  match: z
    .strictObject({
      channel: nonBlank.meta({ description: 'channel name' }),
      accountId: nonBlank.optional().meta({ description: 'our account there; `*` is any, unset is only `default`' }),
      peer: Peer.optional().meta({ description: 'one chat or sender, or the parent chat of a thread' }),
      guildId: nonBlank.optional().meta({ description: 'a server of chats' }),
      teamId: nonBlank.optional().meta({ description: 'a workspace' }),
    })
    .meta({ description: 'all fields given must match' }),
});
export type Binding = z.infer<typeof Binding>;

export const Classification = z.strictObject({
  default: Level.default('PUBLIC').meta({ description: 'level of every channel and tool that has none of its own' }),
  channels: byName(Level).default({}).meta({ description: 'level of messages from and to a channel' }),
  tools: byName(Level).default({}).meta({
    description: 'level of the results of a tool; only sessions whose clearance reaches it get the tool',
  }),
});

export const PolicyRule = z
  .strictObject({
    id: atMost(128).meta({ description: 'its name in decisions' }),
    hook: HookName.meta({ description: 'the moment at which it is evaluated' }),
    match: z
      .strictObject({
        tool: Glob.optional().meta({ description: 'tool name with `*`' }),
        channel: Glob.optional().meta({ description: 'channel name with `*`: where the turn goes' }),
        agentId: Glob.optional().meta({ description: 'agent id with `*`' }),
        keyPrefix: nonBlank.optional().meta({ description: 'start of the store key or of the request key' }),
        taint: Level.optional().meta({ description: 'the session is at this level or above' }),
        text: Pattern.optional().meta({ description: 'RE2 pattern found in the text; of calls and results in their decoded strings' }),
      })
      .default({})
      .meta({ description: 'all fields given must match; an empty match is always' }),
    effect: z.enum(['BLOCK', 'REDACT']).meta({ description: 'rules only tighten, so there is no ALLOW' }),
    message: atMost(500).optional().meta({ description: 'the reason in the error when it blocks' }),
  })
  .refine(
    (rule) => rule.effect !== 'REDACT' || rule.match.text !== undefined,
    'needs `match.text`, the pattern to take out, when its effect is REDACT',
  )
  .refine(
    (rule) => rule.effect !== 'REDACT' || !matchesNothing(rule.match.text),
    'needs a `match.text` that does not match empty text when its effect is REDACT',
  );
export type PolicyRule = z.infer<typeof PolicyRule>;

/** All settings that rules read; a whole config is one of these. */
export interface RuleSettings {
  session: {
    scope: z.infer<typeof SessionScope>;
    dmScope: DmScope;
    mainKey: string;
    identityLinks: z.infer<typeof IdentityLinks>;
    sendPolicy: SendPolicy;
  };
  agents: {
    defaults: {
      sandbox: { mode: SandboxMode; sessionToolsVisibility: z.infer<typeof SessionToolsVisibility> };
      subagents: { allowAgents?: string[] | undefined; maxSpawnDepth: number };
      clearance: Level;
    };
    list: AgentEntry[];
  };
  tools: {
    sessions: { visibility: Visibility };
    agentToAgent: AgentToAgent;
    subagents: { tools: ToolList };
    channels: Record<string, ToolList>;
  };
  mcp: {
    servers: Record<
      string,
      {
        agents?: string[] | undefined;
        level?: Level | undefined;
        accepts?: Level | undefined;
        tools: Record<string, { level?: Level | undefined }>;
      }
    >;
  };
  bindings: Binding[];
  classification: z.infer<typeof Classification>;
  policy: { rules: PolicyRule[] };
}
