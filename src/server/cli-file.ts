// The file by which the commands of this machine's own user find the running gateway: its address and a secret, private to the user.
import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { cliFile } from '../config/paths.ts';
import { stateReadOnly } from '../errors.ts';

export interface CliFile {
  url: string;
  token: string;
  pid: number;
  /** The config file it follows, if it was given one. */
  config?: string | undefined;
}

/** Written whole or not at all, so that a command never reads half of it. Returns the undo. */
export function writeCliFile(stateDir: string, content: CliFile): () => void {
  const file = cliFile(stateDir);
  const text = `${JSON.stringify(content)}\n`;
  try {
    rmSync(`${file}.new`, { force: true }); // its mode would stay
    writeFileSync(`${file}.new`, text, { mode: 0o600 });
    renameSync(`${file}.new`, file);
  } catch (thrown) {
    throw stateReadOnly(stateDir, thrown);
  }
  return () => {
    try {
      // A gateway that started meanwhile has written its own.
      if (readFileSync(file, 'utf8') === text) rmSync(file);
    } catch {
      // gone already
    }
  };
}
