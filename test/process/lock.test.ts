// One process per state directory: the lock is held for life, told by name, and free the moment its holder is dead.
import { statSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { lockState } from '../../src/store/sqlite/lock.ts';
import { scratch, start } from './child.ts';

const program = `
  import { lockState } from ${JSON.stringify(resolve('src/store/sqlite/lock.ts'))};
  try {
    lockState(process.argv[1], { pid: process.pid, host: 'elsewhere', startedAt: 0 });
    globalThis.gc(); // nothing here refers to the lock, and it is held all the same
    console.log('held');
    setInterval(() => {}, 1_000_000);
  } catch (error) {
    console.log(error.code + ' ' + error.message);
  }
`;
const hold = (state: string) => start(process.execPath, ['--expose-gc', '--input-type=module', '-e', program, state]);
const me = { pid: process.pid, host: 'here', startedAt: 0 };
const inUse = (state: string, holder: string) =>
  expect.objectContaining({
    code: 'STATE_IN_USE',
    message: `state directory ${state} is in use by ${holder}; stop it, or choose another with --state-dir`,
  });

describe('the state lock', () => {
  it('refuses a second process and names the first', async () => {
    const state = scratch();
    const holder = hold(state);
    await holder.printed('held');
    const { stdout } = await hold(state).finished;
    const named = `another gateway (process ${holder.child.pid} on elsewhere)`;
    expect(stdout).toBe(`STATE_IN_USE state directory ${state} is in use by ${named}; stop it, or choose another with --state-dir\n`);
    expect(() => lockState(state, me)).toThrow(inUse(state, named));
  });

  it('is free at once when its holder was killed', async () => {
    const state = scratch();
    for (let round = 0; round < 3; round++) {
      const holder = hold(state);
      await holder.printed('held');
      holder.child.kill('SIGKILL');
      expect((await holder.finished).signal).toBe('SIGKILL');
      lockState(state, me)();
    }
  });

  it('is kept by a process that is suspended', async () => {
    const state = scratch();
    const holder = hold(state);
    await holder.printed('held');
    holder.child.kill('SIGSTOP');
    expect((await hold(state).finished).stdout).toContain(`process ${holder.child.pid} on elsewhere`);
    holder.child.kill('SIGCONT');
    expect((await hold(state).finished).stdout).toContain(`process ${holder.child.pid} on elsewhere`);
  });

  it('goes to exactly one of several that want it at the same time', async () => {
    const state = scratch();
    const rivals = Array.from({ length: 4 }, () => hold(state));
    const outcomes = await Promise.all(
      rivals.map((rival) =>
        rival.printed('held').then(
          () => 'held',
          () => 'refused',
        ),
      ),
    );
    expect(outcomes.toSorted()).toEqual(['held', 'refused', 'refused', 'refused']);
  });

  it('binds the same process too, and is given back once', () => {
    const state = scratch();
    const release = lockState(state, me);
    expect(() => lockState(state, me)).toThrow(inUse(state, `another gateway (process ${process.pid} on here)`));
    release();
    const again = lockState(state, me);
    release();
    expect(() => lockState(state, me)).toThrow(inUse(state, `another gateway (process ${process.pid} on here)`));
    again();
  });

  it('says that somebody is there when the nameplate cannot be read', () => {
    const state = scratch();
    const release = lockState(state, me);
    writeFileSync(join(state, 'holder.json'), '{');
    expect(() => lockState(state, me)).toThrow(inUse(state, 'another gateway'));
    release();
  });

  it('is private, and refuses by name what is not a lock', () => {
    const state = scratch();
    lockState(state, me)();
    expect(['lock.db', 'holder.json'].map((name) => statSync(join(state, name)).mode & 0o777)).toEqual([0o600, 0o600]);
    writeFileSync(join(state, 'lock.db'), 'not a database, whatever it is');
    expect(() => lockState(state, me)).toThrow(`state lock ${join(state, 'lock.db')} cannot be taken: the file is not a database`);
    expect(() => lockState(join(state, 'missing'), me)).toThrow(`state lock ${join(state, 'missing', 'lock.db')} cannot be taken`);
  });
});
