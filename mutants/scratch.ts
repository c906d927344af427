/** A copy of the checkout to change: the checkout itself stays as it is. */
import { execFileSync } from 'node:child_process';
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Mutant } from './mutant.ts';

export const ROOT = path.dirname(import.meta.dirname);

export interface Scratch {
  dir: string;
  /** @returns what puts the file back. @throws Error when the place of the change is not found. */
  apply(mutant: Mutant): () => void;
  remove(): void;
}

/** Has what git knows or would take, as it stands here, and the packages that are installed here. */
export function createScratch(): Scratch {
  const dir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-mutants-'));
  const listed = execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: ROOT,
    encoding: 'utf8',
    maxBuffer: 1 << 26,
  });
  for (const file of listed.split('\0').filter((name) => name !== '')) {
    // One that is deleted and not committed is listed all the same.
    cpSync(path.join(ROOT, file), path.join(dir, file), { recursive: true, force: true });
  }
  linkPackages(path.join(ROOT, 'node_modules'), path.join(dir, 'node_modules'));
  return {
    dir,
    apply(mutant) {
      const file = path.join(dir, mutant.file);
      const source = readFileSync(file, 'utf8');
      writeFileSync(file, mutant.change(source));
      return () => writeFileSync(file, source);
    },
    remove: () => rmSync(dir, { recursive: true, force: true }),
  };
}

/** Links each package by itself, so that the folder has its own cache: bundles of changed workflows go there. */
function linkPackages(from: string, to: string): void {
  mkdirSync(to);
  for (const name of readdirSync(from)) {
    if (name !== '.cache') symlinkSync(path.join(from, name), path.join(to, name));
  }
}
