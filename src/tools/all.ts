// Every built-in tool, by hand.
import type { SearchIndex } from '../store/search.ts';
import { agentsList } from './agents-list.ts';
import type { Tool } from './define.ts';
import { filesList, filesRead, filesWrite } from './files.ts';
import { sessionStatus } from './session-status.ts';
import { sessionsHistory } from './sessions-history.ts';
import { sessionsList } from './sessions-list.ts';
import { sessionsSearch } from './sessions-search.ts';
import { sessionsSend } from './sessions-send.ts';
import { summarize } from './summarize.ts';

export function builtInTools({ search }: { search: SearchIndex }): Tool[] {
  return [
    sessionsList,
    sessionsHistory,
    sessionsSend,
    sessionStatus,
    sessionsSearch(search),
    agentsList,
    filesList,
    filesRead,
    filesWrite,
    summarize,
  ];
}
