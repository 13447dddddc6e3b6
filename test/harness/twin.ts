// The in-memory twin under a whole gateway: every other command meets a made-up conflict and is run again.
import { memoryStore } from '../../src/store/memory.ts';
import type { Store } from '../../src/store/contract.ts';

export function twin(seed: number): Store {
  let state = seed;
  const random = () => (state = (state * 48_271) % 2_147_483_647) / 2_147_483_647;
  return memoryStore({ rerun: 0.5, random });
}
