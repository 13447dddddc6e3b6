// Every tool there is, by hand.
import { agentsList } from './agents-list.ts';
import type { Tool } from './define.ts';
import { sessionStatus } from './session-status.ts';
import { sessionsHistory } from './sessions-history.ts';
import { sessionsList } from './sessions-list.ts';
import { sessionsSend } from './sessions-send.ts';

export const allTools: Tool[] = [sessionsList, sessionsHistory, sessionsSend, sessionStatus, agentsList];
