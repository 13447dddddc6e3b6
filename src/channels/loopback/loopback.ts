// The loopback channel: messages go to an address on this machine, or straight to a function. For demos, tests and scripts.
import { request } from 'node:http';
import type { Channel, Outbound, SendOutcome } from '../channel.ts';

/** Hands each message to a function in this process. */
export function loopbackTo(receive: (message: Outbound) => void): Channel {
  return {
    name: 'loopback',
    // oxlint-disable-next-line require-await -- asynchronous by contract
    async send(message) {
      receive(message);
      return { outcome: 'sent', platformId: message.id };
    },
  };
}

/** Posts each message as JSON. A refused connection or a 4xx is definite; a lost connection after the bytes were sent is not. */
export function loopbackPost(url: string): Channel {
  return {
    name: 'loopback',
    send: (message, signal) =>
      new Promise<SendOutcome>((resolve) => {
        let left = false;
        const posting = request(
          url,
          { method: 'POST', signal, headers: { 'content-type': 'application/json' }, timeout: 30_000 },
          (response) => {
            response.resume();
            const status = response.statusCode ?? 0;
            if (status >= 200 && status < 300) resolve({ outcome: 'sent', platformId: message.id });
            else if (status === 429 || status === 503) resolve({ outcome: 'retry', error: `the receiver answered ${status}` });
            else if (status >= 400 && status < 500) resolve({ outcome: 'refused', error: `the receiver answered ${status}` });
            else resolve({ outcome: 'unknown', error: `the receiver answered ${status}` });
          },
        );
        posting.on('socket', (socket) => socket.once('connect', () => (left = true)));
        posting.on('timeout', () => posting.destroy(new Error('the receiver did not answer')));
        posting.on('error', (error) => resolve({ outcome: left ? 'unknown' : 'retry', error: error.message }));
        posting.end(JSON.stringify(message));
      }),
  };
}
