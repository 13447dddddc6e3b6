// The built-in tools by name, as `explain` lists them without a gateway; a test checks that the gateway has the same list.
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

/** The tools that only guests have. */
export const guestToolNames: readonly string[] = ['inbox', 'reply'];
