// Processes under test: a node with its console, and the console of another cluster. Each is ended by its process id.
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const ROOT = process.env.ROOT;
export const THALWEG = process.env.THALWEG_BIN || join(ROOT, 'target/release/thalweg');

export class Process {
  constructor(argument, wanted) {
    this.said = '';
    this.child = spawn(THALWEG, argument, { stdio: ['ignore', 'ignore', 'pipe'] });
    this.ready = new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error(`not ready:\n${this.said}`)), 60_000);
      this.child.on('exit', (code) => reject(new Error(`exited with ${code}:\n${this.said}`)));
      this.child.stderr.on('data', (bytes) => {
        this.said += bytes;
        if (wanted.every((words) => words.test(this.said))) {
          clearTimeout(late);
          resolve(this);
        }
      });
    });
  }

  find(words) {
    return words.exec(this.said)?.[1];
  }

  get url() {
    return this.find(/console is at (\S+)/);
  }

  async stop() {
    const ended = new Promise((resolve) => this.child.once('exit', resolve));
    if (this.child.exitCode === null) this.child.kill('SIGTERM');
    await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, 10_000))]);
    this.child.kill('SIGKILL');
  }
}

// A node with its data in its own directory.
export async function node(settings, options = []) {
  const directory = mkdtempSync(join(tmpdir(), 'console-'));
  const set = settings.flatMap((setting) => ['--set', setting]);
  const argument = ['serve', '--data-dir', join(directory, 'data'), '--listen', '127.0.0.1:0', '--set', 'http.listener=127.0.0.1:0'];
  const started = new Process([...argument, ...set, ...options.map((option) => option.replace('DIRECTORY', directory))], [/console is at \S+\n/]);
  started.directory = directory;
  await started.ready;
  started.bootstrap = started.find(/listens on [A-Z_]+:\/\/([^,; ]+)/);
  return started;
}

export async function remove(node) {
  await node.stop();
  rmSync(node.directory, { recursive: true, force: true });
}

export async function consoleOf(bootstrap, options = []) {
  const started = new Process(['console', '--bootstrap-server', bootstrap, '--listen', '127.0.0.1:0', ...options], [/console is at \S+\n/]);
  return started.ready;
}

export function thalweg(bootstrap, line, input = '') {
  const argument = [...line, '--bootstrap-server', bootstrap];
  return execFileSync(THALWEG, argument, { input, encoding: 'utf8', stdio: ['pipe', 'pipe', 'pipe'], timeout: 60_000 });
}
