// A config → everything that follows from it: rules, routes, models, workspaces. Immutable; another config makes another setup.
import { accessSync, constants, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, resolve } from 'node:path';
import { invalidConfig, type LoadedConfig } from './config/load.ts';
import { tellFindings } from './config/places.ts';
import type { Config } from './config/schema.ts';
import { asFlow, type Kernel } from './engine/flow.ts';
import type { Finding } from './finding.ts';
import { exchangeFlow } from './flows/exchange.ts';
import { agentId as agentIdOf } from './protocol/ids.ts';
import type { AgentEntry } from './protocol/settings.ts';
import { compileWorld, type World } from './rules/decide.ts';
import { compileRoutes, type Routes } from './rules/route.ts';
import type { Found } from './runtimes/model/choice.ts';
import { Models, needsAddress, type ModelSettings } from './runtimes/model/models.ts';
import type { SessionRow } from './store/rows.ts';
import { mistakesIn, type Known } from './mistakes.ts';
import type { Place } from './tools/workspace-room.ts';
import { workspaceDirs, workspaceFindings } from './tools/workspaces.ts';

export interface Setup extends Kernel {
  /** Rises with every config that is applied. */
  rev: number;
  config: Config;
  routes: Routes;
  models: Models;
  /** The settings of an agent. */
  agent(agentId: string): AgentEntry | undefined;
  /** What works in the config, but perhaps not as intended. */
  warnings: string[];
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
  onDecision?: World['onDecision'];
  /** The verdicts of text patterns. */
  findText?: World['findText'];
  /** What the config may name beside its own parts. */
  known?: Partial<Known>;
}

const flows = new Map([exchangeFlow].map((flow) => [flow.kind, asFlow(flow)]));

/**
 * The one check of a config: `up`, a reload, `config check` and `doctor` make a setup and use its warnings. Throws when the config cannot
 * be used here: a model that is not configured, a workspace around the state directory.
 */
export function makeSetup({ config, places }: LoadedConfig, rev: number, parts: SetupParts): Setup {
  const { stateDir, found, onDecision, findText, known } = parts;
  const compiled = compileWorld(config);
  const world: World = { ...compiled, ...(findText ? { findText } : {}), ...(onDecision ? { onDecision } : {}) };
  const models = new Models(modelSettings(config), config.models.discover ? found : undefined);
  const routes = compileRoutes(config, world.agents);
  const home = homedir();
  const findings = [
    ...modelFindings(config, models),
    ...workspaceFindings(config.agents.list, { stateDir, home }),
    ...routes.findings,
    ...mistakesIn(config, world, { tools: [], channels: [], canRun, ...known }, places),
  ];
  const unusable = findings.filter(({ refuses }) => refuses);
  if (unusable.length > 0) throw invalidConfig(tellFindings(unusable, config, places));
  const agents = new Map(config.agents.list.map((entry) => [agentIdOf(entry.id), entry]));
  return {
    rev,
    config,
    world,
    flows,
    routes,
    models,
    warnings: tellFindings(findings, config, places),
    agent: (agentId) => agents.get(agentId),
    workspace: workspaceDirs(world, config.agents.list, { stateDir, home }),
  };
}

function modelFindings({ agents, models: { providers } }: Config, models: Models): Finding[] {
  const named: [PropertyKey[], string | undefined][] = [
    [['agents', 'defaults', 'model'], agents.defaults.model],
    ...agents.defaults.fallbacks.map((ref, index): [PropertyKey[], string] => [['agents', 'defaults', 'fallbacks', index], ref]),
    ...agents.list.map(({ model }, index): [PropertyKey[], string | undefined] => [['agents', 'list', index, 'model'], model]),
  ];
  const unaddressed = Object.entries(providers).filter(([, { type, baseUrl }]) => type === 'openai-compatible' && baseUrl === undefined);
  return [
    ...unaddressed.map(([name]): Finding => ({ path: ['models', 'providers', name], says: needsAddress, refuses: true, inName: true })),
    ...named.flatMap(([path, ref]): Finding[] => {
      const wrong = ref === undefined ? undefined : models.problem(ref);
      return wrong ? [{ path, ...wrong, refuses: true }] : [];
    }),
  ];
}

/** Whether a program is there: at its path, or in PATH. */
function canRun(command: string, env: Record<string, string>): boolean {
  const folders = /[\\/]/.test(command) ? [''] : (env['PATH'] ?? process.env['PATH'] ?? '').split(delimiter);
  const endings = process.platform === 'win32' ? ['', ...(process.env['PATHEXT'] ?? '').split(';')] : [''];
  return folders.some((folder) => endings.some((ending) => isProgram(resolve(folder, command + ending))));
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile();
  } catch {
    return false;
  }
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
