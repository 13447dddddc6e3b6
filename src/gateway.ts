// Config → a gateway: every stage made and wired by hand, in the order a message meets them.
import type { Config } from './config/schema.ts';
import { compileWorld, type World } from './rules/decide.ts';
import { compileRoutes, type Routes } from './rules/route.ts';

export interface Gateway {
  world: World;
  routes: Routes;
  /** What the config says that is probably not meant. */
  warnings: string[];
  start(): void;
  close(): void;
}

const longestTimer = 2 ** 31 - 1;

export function createGateway(config: Config): Gateway {
  // 1. the policy door: who may see, reach, send and spawn
  const world = compileWorld(config);
  // 2. routing: which agent and session an inbound message belongs to
  const routes = compileRoutes(config, world.agents);
  // 3. staying up: until there are doors to listen at, one idle timer holds the process
  let idle: NodeJS.Timeout | undefined;
  return {
    world,
    routes,
    warnings: routes.warnings,
    start() {
      idle ??= setInterval(() => {}, longestTimer);
    },
    close() {
      clearInterval(idle);
      idle = undefined;
    },
  };
}
