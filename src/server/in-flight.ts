// What one websocket has under way, with the limits for it: requests without an answer, waits for runs, and frames that are not read yet.
import { InterlaneError } from '../errors.ts';
import { mostInFlight, mostWaits } from '../protocol/frame.ts';

/** The place of one request. */
export interface Place {
  /** Its frame is read. */
  read(): void;
  /** It waits for a run from now on, and is no longer counted among the requests without an answer. Throws if there are too many waits. */
  waits(): void;
  leave(): void;
}

export class InFlight {
  private unanswered = 0;
  private waits = 0;
  private unread = 0;

  /** A place for a request of so many bytes; undefined if there is none. */
  enter(bytes: number, mostBytes: number): Place | undefined {
    if (this.unanswered >= mostInFlight || (this.unread > 0 && this.unread + bytes > mostBytes)) return undefined;
    this.unanswered++;
    this.unread += bytes;
    let leave = () => void this.unanswered--;
    return {
      read: () => void (this.unread -= bytes),
      waits: () => {
        if (this.waits >= mostWaits)
          throw new InterlaneError('BUSY', `connection waits for ${mostWaits} runs already; this run goes on, call agent.wait later`);
        leave();
        this.waits++;
        leave = () => void this.waits--;
      },
      leave: () => leave(),
    };
  }
}
