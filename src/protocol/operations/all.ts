// The one table of operations. Websocket, HTTP, OpenAPI, the client's types and the command line's help are made from it.
import { access } from './access.ts';
import { chat } from './chat.ts';
import { deliveries } from './deliveries.ts';
import { explain } from './explain.ts';
import { feed } from './feed.ts';
import type { ParamsIn, ParamsOut, ResultsOf } from './operation.ts';
import { sessions } from './sessions.ts';
import { system } from './system.ts';
import { tools } from './tools.ts';

export const operations = { ...system, ...sessions, ...chat, ...deliveries, ...feed, ...tools, ...explain, ...access } as const;

export type OperationName = keyof typeof operations;
export type Params<N extends OperationName> = ParamsIn<typeof operations>[N];
export type ReadParams<N extends OperationName> = ParamsOut<typeof operations>[N];
export type Results = ResultsOf<typeof operations>;
