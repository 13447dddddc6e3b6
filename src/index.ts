// The public surface of the package, by name.
export { defaultConfig, loadConfig, readConfig, type LoadedConfig } from './config/load.ts';
export type { Config } from './config/schema.ts';
export { errorTable, InterlaneError, type ErrorCode } from './errors.ts';
export { startGateway, type Gateway, type GatewayOptions } from './gateway.ts';
export { connect, type Client, type ConnectOptions } from './client/client.ts';
export { follow, type Follow } from './client/follow.ts';
export { loopbackPost, loopbackTo } from './channels/loopback/loopback.ts';
export type { Channel } from './channels/channel.ts';
export { memoryStore } from './store/memory.ts';
export { Script, scriptedModel } from './runtimes/scripted/scripted.ts';
export { defineTool, type Tool } from './tools/define.ts';
export { decide, partyOf, type Decision, type Request, type World } from './rules/decide.ts';
export { route, type Route, type Routes } from './rules/route.ts';
export { formatSessionKey, parseSessionKey, requestKey, type SessionKey } from './rules/session-key.ts';
export { planReference, settleReference } from './rules/reference.ts';
export { parseDuration } from './durations.ts';
export { nextDue, parseSchedule, type Schedule } from './rules/schedule.ts';
