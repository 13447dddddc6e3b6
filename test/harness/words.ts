// The words of our prompts that scripts listen for: the one place where the stories know how a turn is told what it is.

/** Patterns of a script's `when`, and parts of what a model service is asked. */
export const told = {
  /** The first message of another session. */
  message: 'Message from session',
  /** A turn of the loop that follows the first reply. */
  reply: 'Reply from session',
  /** What came of an exchange may be said to the channel. */
  announce: 'exchange with session',
  /** A model is asked to sum up what no longer fits. */
  summarize: 'Summarise this conversation',
  /** In the system prompt: which session a model speaks in. */
  ownSession: (key: string) => `the session ${key}`,
};
