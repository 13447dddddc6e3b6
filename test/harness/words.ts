// The words of our prompts that scripts listen for: the one place where the stories know how a turn is told what it is.

/** Patterns of a script's `when`: what stands beside a message that comes from an exchange. */
export const told = {
  /** The first message of another session. */
  message: 'Message from session',
  /** A turn of the loop that follows the first reply. */
  reply: 'Reply from session',
  /** What came of an exchange may be said to the channel. */
  announce: 'exchange with session',
};
