// The whole configuration as one schema: every setting, its default and the reason for it.
import { z } from 'zod';
import { agentId } from '../protocol/ids.ts';
import { Level, ThinkingLevel, Visibility } from '../protocol/labels.ts';
import {
  AgentEntry,
  AgentToAgent,
  AllowAgents,
  Binding,
  byName,
  ChannelId,
  Classification,
  DmScope,
  IdentityLinks,
  MainKey,
  nonBlank,
  PolicyRule,
  SandboxMode,
  SendPolicy,
  SessionScope,
  SessionToolsVisibility,
  toolList,
} from '../protocol/settings.ts';

// `meta` of a setting: `description` is its reason; `notYet` marks one that nothing reads yet; `secret` one that is never printed;
// `restart` one that applies only after a restart.
// A mark on a group applies to everything in it.

const text = nonBlank;
const httpUrl = z.url({ protocol: /^https?$/, error: 'must be an http or https address' });
const secret = (description: string) => text.optional().meta({ description, secret: true });
const secrets = (description: string) => z.record(z.string(), z.string()).default({}).meta({ description, secret: true });

const session = z.strictObject({
  scope: SessionScope.default('per-sender').meta({
    description: 'people keep their own sessions; "global" puts all direct chats into one',
  }),
  dmScope: DmScope.default('main').meta({
    description: 'direct chats share the main session, right for one person with many apps; narrow it when others write too',
  }),
  mainKey: MainKey.default('main').meta({ description: 'the name of the main session in keys' }),
  identityLinks: IdentityLinks.default({}).meta({
    description: 'one person on several channels: { "ana": ["telegram:111", "discord:222"] }; people are never linked by guess',
  }),
  sendPolicy: SendPolicy.prefault({}),
  agentToAgent: z
    .strictObject({
      maxPingPongTurns: z.int().min(0).max(5).default(5).meta({ description: 'enough to settle a question, too few to loop' }),
    })
    .prefault({}),
  queue: z
    .strictObject({
      collectMs: z.int().min(0).max(60_000).default(0).meta({
        description:
          'how long a turn waits for more messages to collect; 0 collects only those that came while the session was busy, so that no answer waits',
      }),
    })
    .prefault({}),
  threadBindings: z
    .strictObject({
      enabled: z.boolean().default(true).meta({ description: 'a spawn may request its own thread if the channel has threads' }),
      idleHours: z.int().min(0).default(24).meta({ description: 'a thread is released after a day without use; 0 is never' }),
    })
    .prefault({})
    .meta({ notYet: true }),
});

const agentDefaults = z.strictObject({
  model: text.optional().meta({ description: 'provider/model; without it the first model found is used' }),
  fallbacks: z.array(text).default([]).meta({ description: 'models to try, in order, when the first one does not answer' }),
  thinking: ThinkingLevel.optional().meta({ description: "without it the model's own default applies" }),
  maxConcurrent: z.int().min(1).optional().meta({ description: 'chat runs at once; without it 4 per processor core', restart: true }),
  timeoutSeconds: z.int().min(0).max(86_400).default(3_600).meta({
    description: 'a run that has worked for an hour hangs; time in the queue, waiting or stopped does not count, and 0 is no limit',
  }),
  clearance: Level.default('RESTRICTED').meta({
    description: "the highest level that an agent's sessions may rise to; what is above it is refused before they get it",
  }),
  sandbox: z
    .strictObject({
      mode: SandboxMode.default('off').meta({ description: 'which sessions are confined: none, all but the main one, or all' }),
      sessionToolsVisibility: SessionToolsVisibility.default('spawned').meta({
        description: 'a confined session sees at most itself and the sessions it spawned',
      }),
    })
    .prefault({}),
  subagents: z
    .strictObject({
      model: text.optional().meta({ description: "without it a child runs on its agent's model", notYet: true }),
      thinking: ThinkingLevel.optional().meta({ description: 'without it a child thinks like its agent', notYet: true }),
      runTimeoutSeconds: z.int().min(0).default(0).meta({ description: 'a child may take its time; 0 is no limit', notYet: true }),
      archiveAfterMinutes: z
        .int()
        .min(0)
        .default(60)
        .meta({ description: 'time to look at a finished child before it is archived; 0 is never', notYet: true }),
      allowAgents: AllowAgents.optional().meta({ description: 'other agents an agent may spawn; without it only itself, `["*"]` is any' }),
      maxSpawnDepth: z.int().min(1).max(5).default(1).meta({ description: 'children do not spawn children by default' }),
      maxConcurrent: z
        .int()
        .min(1)
        .default(8)
        .meta({ description: 'children at once, so that they cannot crowd out chats', restart: true }),
    })
    .prefault({}),
});

const agents = z.strictObject({
  defaults: agentDefaults.prefault({}),
  list: z
    .array(AgentEntry)
    .default([])
    .superRefine((list, context) => {
      const seen = new Map<string, number>();
      list.forEach((entry, index) => {
        const id = agentId(entry.id);
        const earlier = seen.get(id);
        if (earlier === undefined) seen.set(id, index);
        else
          context.addIssue({
            code: 'custom',
            path: [index, 'id'],
            message: `must differ from agents.list[${earlier}].id, which becomes the same id`,
          });
      });
    })
    .meta({ description: 'without a list there is one agent, "main"' }),
});

const tools = z.strictObject({
  sessions: z
    .strictObject({
      visibility: Visibility.default('tree').meta({
        description: 'a session sees itself and the sessions it spawned, until you allow more',
      }),
    })
    .prefault({}),
  agentToAgent: AgentToAgent.prefault({}),
  files: z
    .strictObject({
      maxMiB: z.int().min(1).max(1_000_000).default(100).meta({
        description: 'what sessions may write into one workspace: enough for notes and sources, too little to fill a disk',
      }),
      maxFiles: z.int().min(1).max(1_000_000).default(10_000).meta({ description: 'how many files sessions may make in one workspace' }),
    })
    .prefault({}),
  subagents: z
    .strictObject({
      tools: toolList(
        'only these tools for children, by name with `*`; without it all but the session tools',
        'never these tools for children; beats allow',
      ).prefault({}),
    })
    .prefault({}),
  channels: byName(toolList('only these tools for sessions on this channel; without it all', 'never these tools there; beats allow'))
    .default({})
    .meta({ description: 'tools by the channel a session speaks on: fewer in a public group than in your own chat' }),
});

const provider = z.strictObject({
  type: z.enum(['openai-compatible', 'openai', 'anthropic', 'google']).meta({ description: 'the protocol of the service' }),
  baseUrl: httpUrl.optional().meta({ description: "without it the provider's own address", secret: true }),
  apiKey: secret('write "${NAME}" to take it from the environment'),
  authProfiles: z
    .record(z.string(), z.strictObject({ apiKey: secret('key of this profile') }))
    .default({})
    .meta({ description: 'further keys to choose from by name' }),
  models: z
    .record(
      z.string(),
      z.strictObject({
        contextTokens: z.int().min(1_000).optional().meta({ description: 'its window; without it 128,000 is assumed' }),
        cost: z
          .strictObject({
            input: z.number().min(0).meta({ description: 'dollars for a million tokens read' }),
            output: z.number().min(0).meta({ description: 'dollars for a million tokens written' }),
          })
          .optional()
          .meta({ description: 'its price; without it there is no cost in the usage' }),
      }),
    )
    .default({})
    .meta({ description: 'facts about single models, by their name at the provider' }),
});

const ToolEffect = z.enum(['pure', 'keyed', 'once']);
/** Part of the names of its tools, `server__tool`, so it has no double underscore. */
const ServerName = z
  .string()
  .max(32, 'must be at most 32 characters')
  .regex(/^[a-zA-Z0-9-]+(_[a-zA-Z0-9-]+)*$/, 'must be of a-z, 0-9, "-" and single "_"');

const mcpServer = z
  .strictObject({
    command: text.optional().meta({ description: 'program to start and talk to over its standard input and output' }),
    args: z.array(z.string()).default([]).meta({ description: 'its arguments', secret: true }),
    env: secrets('its environment beside HOME, LOGNAME, PATH, SHELL, TERM and USER; it gets no other variable of the gateway'),
    url: httpUrl.optional().meta({ description: 'address of a server that already runs' }),
    headers: secrets('sent with every request to the address'),
    agents: AllowAgents.optional().meta({ description: 'agents that get its tools; without it every agent' }),
    level: Level.optional().meta({ description: 'level of the results of its tools; without it `classification.default`' }),
    accepts: Level.optional().meta({
      description: 'the highest level of a session that may call its tools, because the arguments leave the gateway; without it `level`',
    }),
    effect: ToolEffect.default('once').meta({
      description: 'the effect of a call: none, the same if repeated, or one that must not be repeated, which is the safe default',
    }),
    timeoutSeconds: z.int().min(1).max(3_600).default(60).meta({ description: 'a call that takes longer fails' }),
    tools: z
      .record(
        z.string(),
        z.strictObject({
          effect: ToolEffect.optional().meta({ description: "overrides the server's" }),
          level: Level.optional().meta({ description: "overrides the server's" }),
        }),
      )
      .default({})
      .meta({ description: 'facts about single tools, by their name at the server' }),
  })
  .refine(
    (server) => (server.command === undefined) !== (server.url === undefined),
    'needs either `command` or `url`, not both and not neither',
  );

export const Config = z.strictObject({
  session: session.prefault({}),
  agents: agents.prefault({}),
  owners: z.array(ChannelId).default([]).meta({ description: 'people who may use owner commands; none by default', notYet: true }),
  tools: tools.prefault({}),
  bindings: z.array(Binding).default([]).meta({ description: 'which agent answers where; other messages go to the default agent' }),
  channels: z
    .record(
      z.string(),
      z.strictObject({ enabled: z.boolean().default(true).meta({ description: 'a configured channel is in use unless you disable it' }) }),
    )
    .default({})
    .meta({ description: 'chat platforms to connect', notYet: true, secret: true }),
  models: z
    .strictObject({
      providers: z.record(z.string(), provider).default({}).meta({ description: 'model services by the name used in provider/model' }),
      discover: z.boolean().default(true).meta({
        description:
          'with no model configured, `up` looks for a key in the environment and for a local Ollama; false keeps to the scripted model',
      }),
    })
    .prefault({}),
  classification: Classification.prefault({}),
  policy: z
    .strictObject({
      rules: z.array(PolicyRule).default([]).meta({ description: 'your own policy rules; they can only tighten policy' }),
    })
    .prefault({}),
  gateway: z
    .strictObject({
      port: z.int().min(0).max(65_535).default(4683).meta({ description: 'where clients connect; 0 takes any free port' }),
      host: text.default('127.0.0.1').meta({ description: 'only this machine can connect, until you change it' }),
      names: z
        .array(text)
        .default([])
        .meta({ description: 'host names that clients use beside localhost and addresses; others are refused, against DNS rebinding' }),
    })
    .prefault({})
    .meta({ restart: true }),
  guests: z
    .strictObject({
      replyMinutes: z.int().min(1).max(1_440).default(10).meta({
        description:
          'how long a guest has to answer a message it took before it is offered again; most work of a coding agent is done by then, and a late answer still counts while no other client has the message',
      }),
    })
    .prefault({}),
  hooks: z
    .strictObject({
      enabled: z.boolean().default(false).meta({ description: 'no webhook starts a run until you enable it' }),
      token: secret('the token that a webhook caller must send'),
    })
    .prefault({})
    .meta({ notYet: true }),
  mcp: z
    .strictObject({ servers: z.record(ServerName, mcpServer).default({}).meta({ description: 'outside tool servers by name' }) })
    .prefault({})
    .meta({ restart: true }),
  log: z
    .strictObject({
      level: z
        .enum(['debug', 'info', 'warn', 'error', 'silent'])
        .optional()
        .meta({ description: 'how much `up` writes to its error output; without it info, on a terminal only warnings' }),
    })
    .prefault({})
    .meta({ restart: true }),
  store: z
    .strictObject({
      keepDays: z.int().min(1).default(30).meta({
        description: 'how long the feed, ended runs and settled deliveries are kept; transcripts stay until their session is deleted',
      }),
      durability: z
        .enum(['full', 'normal'])
        .default('full')
        .meta({ description: 'an acknowledged message survives a power cut; "normal" survives a crash and is faster' }),
    })
    .prefault({})
    .meta({ restart: true }),
});

export type Config = z.infer<typeof Config>;
