// A config → everything that follows from it: rules, routes, models, workspaces. Immutable; another config makes another setup.
import { homedir } from 'node:os';
import type { Config } from './config/schema.ts';
import { asFlow, type Kernel } from './engine/flow.ts';
import { InterlaneError } from './errors.ts';
import { exchangeFlow } from './flows/exchange.ts';
import { agentId as agentIdOf } from './protocol/ids.ts';
import type { AgentEntry } from './protocol/settings.ts';
import { compileWorld, type World } from './rules/decide.ts';
import { compileRoutes, type Routes } from './rules/route.ts';
import type { Found } from './runtimes/model/choice.ts';
import { Models, type ModelSettings } from './runtimes/model/models.ts';
import type { SessionRow } from './store/rows.ts';
import type { Place } from './tools/workspace-room.ts';
import { workspaceDirs } from './tools/workspaces.ts';

export interface Setup extends Kernel {
  /** Rises with every config that is applied. */
  rev: number;
  config: Config;
  routes: Routes;
  models: Models;
  /** The settings of an agent. */
  agent(agentId: string): AgentEntry | undefined;
  /** Where the files of a session are. */
  workspace(session: Pick<SessionRow, 'key' | 'agent' | 'id'>): Place;
}

/** The current setup. A part calls it once for each action; a reload reaches it in no other way. */
export type CurrentSetup = () => Setup;

export interface SetupParts {
  stateDir: string;
  /** A model that discovery found on this machine, used if none is configured. */
  found: Found | undefined;
  /** Counts decisions. */
  onDecision: World['onDecision'];
  /** The verdicts of text patterns. */
  findText: World['findText'];
}

const flows = new Map([exchangeFlow].map((flow) => [flow.kind, asFlow(flow)]));

/** Throws when the config cannot be used here: a model that is not configured, a workspace around the state directory. */
export function makeSetup(config: Config, rev: number, { stateDir, found, onDecision, findText }: SetupParts): Setup {
  const compiled = compileWorld(config);
  const world: World = { ...compiled, findText, ...(onDecision ? { onDecision } : {}) };
  const models = new Models(modelSettings(config), config.models.discover ? found : undefined);
  const unusable = models.problems();
  if (unusable.length > 0) throw new InterlaneError('CONFIG_INVALID', unusable.join('\n'));
  const agents = new Map(config.agents.list.map((entry) => [agentIdOf(entry.id), entry]));
  return {
    rev,
    config,
    world,
    flows,
    routes: compileRoutes(config, world.agents),
    models,
    agent: (agentId) => agents.get(agentId),
    workspace: workspaceDirs(world, config.agents.list, { stateDir, home: homedir() }),
  };
}

function modelSettings({ models, agents }: Config): ModelSettings {
  const { model, fallbacks } = agents.defaults;
  const levels = new Map(agents.list.map((entry) => [agentIdOf(entry.id), entry.thinking]));
  return {
    providers: models.providers,
    model,
    fallbacks,
    agents: new Map(agents.list.map((entry) => [agentIdOf(entry.id), entry.model])),
    thinking: (agentId) => levels.get(agentId) ?? agents.defaults.thinking,
  };
}
