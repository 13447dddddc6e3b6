// Our words that tests listen for: the one place where the stories know how a turn is told what it is, and what the chat prints.

/** Patterns of a script's `when`, and parts of what a model service is asked. */
export const told = {
  /** The first message of another session. */
  message: 'Message from session',
  /** A turn of the loop that follows the first reply. */
  reply: 'Reply from session',
  /** What came of an exchange may be said to the channel. */
  announce: 'The exchange with',
  /** A model is asked to sum up what no longer fits. */
  summarize: 'Summarise this conversation',
  /** In the system prompt: which session a model speaks in. */
  ownSession: (key: string) => `Your session is ${key}`,
};

/** What the chat and the other commands print beside messages. */
export const printed = {
  summedUp: '(older messages were summarized)',
  stopped: '(stopped)',
  /** The end of the line that says that the connection is lost. */
  lost: 'Reconnecting…)',
  back: '(connected again)',
  elsewhere: 'elsewhere ›',
  from: (key: string) => `from ${key} ›`,
  announceFrom: (key: string) => `announce from ${key} ›`,
  leaves: '(press Ctrl-C again or Ctrl-D to leave)',
  atWork: (key: string) => `${key} is working`,
  /** The last line of `interlane up`. */
  up: 'Press Ctrl-C to stop.',
};

/** A pattern that holds a text as it is. */
export const exactly = (text: string) => text.replaceAll(/[^\w\s]/g, '\\$&');
