// Chooses the runner of a session: the scripted model, a language model, or a guest. No other file does.
import type { Clock } from '../clock.ts';
import { sleep } from '../clock.ts';
import type { ModelView, PromptMessage, Runner, Usage } from '../engine/runner.ts';
import { settingsOf } from '../engine/policy.ts';
import type { AgentEntry } from '../protocol/settings.ts';
import { keyContext, requireAgent } from '../rules/agents.ts';
import { partyOf, reachOf, type World } from '../rules/decide.ts';
import { requireSessionKey } from '../rules/session-key.ts';
import { isSessionTool } from '../rules/tool-policy.ts';
import type { SessionRow } from '../store/rows.ts';
import type { RecapFocus } from '../tools/define.ts';
import type { Invoker } from '../tools/invoke.ts';
import { guestRunner } from './guest/guest.ts';
import type { Choice } from './model/choice.ts';
import { languageModel } from './model/language-model.ts';
import { modelRunner } from './model/loop.ts';
import type { Model } from './model/model.ts';
import type { Models } from './model/models.ts';
import { scriptedModel, type Script } from './scripted/scripted.ts';
import type { Warn } from '../warn.ts';

interface Setup {
  world: World;
  models: Models;
  agent(agentId: string): AgentEntry | undefined;
}

export interface RuntimeParts {
  current(): Setup;
  clock: Clock;
  /** The script of the scripted model. */
  script: Script | undefined;
  warn: Warn;
}

/** What a session reaches does not depend on its level. */
const fresh = { taint: 'PUBLIC', existTaint: 'PUBLIC' } as const;

export class Runtimes {
  private readonly current: () => Setup;
  private readonly scripted: Model;
  private readonly language: Model;

  constructor({ current, clock, script, warn }: RuntimeParts) {
    this.current = current;
    const pause = (ms: number, signal: AbortSignal) => sleep(clock, ms, signal);
    this.scripted = scriptedModel({ ...(script ? { script } : {}), sleep: pause });
    this.language = languageModel({
      models: () => current().models,
      setting: ({ agentId, sessionKey, tools, settings: { see } }) => {
        const { world, agent } = current();
        return {
          agentId,
          name: agent(agentId)?.name,
          instructions: agent(agentId)?.instructions,
          sessionKey,
          reach: tools.some(({ name }) => isSessionTool(name))
            ? reachOf(world, partyOf(world, { ...fresh, key: sessionKey, see }))
            : undefined,
          date: new Date(clock.now()).toISOString().slice(0, 10),
        };
      },
      sleep: pause,
      after: (ms, work) => clock.after(ms, work),
      warn,
    });
  }

  isGuest({ key, agent }: Pick<SessionRow, 'key' | 'agent'>): boolean {
    return requireSessionKey(key, keyContext(this.current().world.agents, agent)).shape === 'guest';
  }

  /** The language model of an agent's sessions that set no other; undefined if the scripted model answers. */
  choiceOf(agentId: string): Choice | undefined {
    return this.modelFor(agentId, undefined) === this.language ? this.current().models.choices(agentId, undefined)[0] : undefined;
  }

  /** The model of a session; undefined for guests and the scripted model. */
  viewOf(session: SessionRow): ModelView | undefined {
    const { agent, models } = this.current();
    if (this.isGuest(session) || agent(session.agent)?.runtime === 'scripted') return undefined;
    return models.view(session.agent, settingsOf(session));
  }

  /** Summarises messages of a session with the session's own model. */
  recap(session: SessionRow, focus: RecapFocus, prompt: PromptMessage[], signal: AbortSignal): Promise<{ text: string; usage: Usage }> {
    const { agent: agentId, key: sessionKey } = session;
    const settings = settingsOf(session);
    const request = { agentId, sessionKey, prompt, tools: [], settings };
    return this.modelFor(agentId, settings.model).recap(request, { signal, delta: () => {}, again: () => {} }, focus);
  }

  /** The runner of a session. A session can have a model even if its agent has none. */
  runners(invoker: Invoker): (session: SessionRow) => Runner {
    const byModel = new Map([this.scripted, this.language].map((model) => [model, modelRunner(model, invoker)]));
    return (session) => {
      // A run that was queued before its agent was removed from the config ends here.
      requireAgent(this.current().world.agents, session.agent);
      if (this.isGuest(session)) return guestRunner;
      const usual = this.modelFor(session.agent, undefined);
      return byModel.get(usual === this.language ? usual : this.modelFor(session.agent, settingsOf(session).model))!;
    };
  }

  private modelFor(agentId: string, model: string | undefined): Model {
    const { agent, models } = this.current();
    return agent(agentId)?.runtime !== 'scripted' && models.answers(agentId, model) ? this.language : this.scripted;
  }
}
