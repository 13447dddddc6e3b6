import { mkdirSync, readdirSync } from 'node:fs';
import { userInfo } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { complaints, scratch, start } from './child.ts';

describe('the package', () => {
  it('packs, installs into an empty folder, and runs there from its compiled files', async () => {
    const directory = scratch();
    const home = join(directory, 'app');
    mkdirSync(home);
    // Where packages come from is the machine's business; everything else is the project's.
    const own = userInfo().homedir;
    const env = {
      npm_config_userconfig: process.env['npm_config_userconfig'] ?? join(own, '.npmrc'),
      npm_config_cache: process.env['npm_config_cache'] ?? join(own, '.npm'),
      ...Object.fromEntries(
        Object.entries(process.env).filter(([name]) => /^(npm_config_registry|https?_proxy|no_proxy|node_extra_ca_certs)$/i.test(name)),
      ),
    };

    const packed = await start('npm', ['pack', '--pack-destination', directory, '--loglevel', 'error'], { env }).finished;
    expect(packed).toMatchObject({ status: 0, stderr: '' });
    const tarball = readdirSync(directory).find((name) => name.endsWith('.tgz'))!;

    const installed = await start(
      'npm',
      ['install', join(directory, tarball), '--prefer-offline', '--no-audit', '--no-fund', '--loglevel', 'error'],
      { env, cwd: home },
    ).finished;
    expect(installed).toMatchObject({ status: 0 });
    const root = join(home, 'node_modules', 'interlane');
    expect(readdirSync(root).toSorted()).toEqual(['CHANGELOG.md', 'LICENSE', 'README.md', 'bin', 'dist', 'package.json']);
    expect(readdirSync(join(root, 'dist')).filter((name) => name.includes('test'))).toEqual([]);

    const command = join(home, 'node_modules', '.bin', 'interlane');
    const version = await start(command, ['--version'], { cwd: home }).finished;
    expect(version).toMatchObject({ status: 0, stdout: expect.stringMatching(/^\d+\.\d+\.\d+\n$/), stderr: '' });

    const up = start(command, ['up', '--port', '0', '--state-dir', join(directory, 'state')], { cwd: home });
    await up.printed('Up. Press Ctrl-C to stop.');
    up.child.kill('SIGINT');
    const { status, stderr } = await up.finished;
    expect([status, complaints(stderr)]).toEqual([0, []]);

    const program = `import { loadConfig, startGateway } from 'interlane'; console.log(typeof loadConfig, typeof startGateway);`;
    const used = await start(join(dirname(process.execPath), 'node'), ['--input-type=module', '-e', program], { cwd: home }).finished;
    expect(used).toMatchObject({ status: 0, stdout: 'function function\n' });
  });
});
