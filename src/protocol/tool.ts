// The built-in tools by name, as `explain` lists them without a gateway; the gateway's own list is pinned to this one by a test.
export const toolNames = [
  'sessions_list',
  'sessions_history',
  'sessions_send',
  'session_status',
  'sessions_search',
  'agents_list',
  'files_list',
  'files_read',
  'files_write',
  'summarize',
] as const;

/** What a session that takes its own turns over MCP has beside them. */
export const guestToolNames: readonly string[] = ['inbox', 'reply'];
