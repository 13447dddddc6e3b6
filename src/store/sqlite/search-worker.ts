// Writes the search index in a thread of its own: job in, outcome out, one after another.
import { parentPort, workerData } from 'node:worker_threads';
import { SearchFile, type Job } from './search-file.ts';

const file = new SearchFile((workerData as { path: string }).path, 200);
let stopped = false;

parentPort!.on('message', (message: Job | 'stop') => {
  if (message !== 'stop') {
    void file.write(message, () => stopped).then((written) => !stopped && parentPort!.postMessage(written));
    return;
  }
  stopped = true;
  file.close();
  parentPort!.close();
});
