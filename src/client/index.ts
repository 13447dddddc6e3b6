// `interlane/client`: what a program or a web page needs to talk to a gateway. Runs in browsers and on Node.js 20 or newer.
export { Client, connect, type CallOptions, type ConnectOptions } from './client.ts';
export { follow, type Follow } from './follow.ts';
export { Conversation, type Accepted, type ConversationEvent, type ConversationOptions, type Pending } from './conversation.ts';
export type { AnswerItem, CallItem, Item } from './items.ts';
export { callsOf, isSaid, isSummary, sourceOf, speaker, textOf } from './messages.ts';
export { errorTable, InterlaneError, type ErrorCode } from '../errors.ts';
export type { HelloOk, Scope } from '../protocol/frame.ts';
export type { OperationName, Params, Results } from '../protocol/operations/all.ts';
export type { SessionsPage, TokenView, WaitAnswer, WireMessage, WireRun, WireSession } from '../protocol/result.ts';
export type { AgentEvent, ChatEvent, EventPayloads, SessionMessage, SessionsChanged } from '../protocol/wire-event.ts';
