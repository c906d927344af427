/** What the stores have on disk: copied while they are dead, put back, taken away, and kept from growing. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import path from 'node:path';

/** Copies a folder with its owners and modes. The copy replaces what was there. */
export function copyFolder(from: string, to: string): void {
  rmSync(to, { recursive: true, force: true });
  execFileSync('cp', ['-a', '--reflink=auto', from, to]);
}

/** Large enough for what a run writes, MB. */
const DISK_MB = 2_048;
const BLOCK_BYTES = 1 << 20;

export interface SmallDisk {
  folder: string;
  /** Leaves no space on it. */
  fill(): void;
  free(): void;
}

/** A separate disk, which can be filled; undefined where this user may not mount one. */
export function mountSmallDisk(folder: string): SmallDisk | undefined {
  mkdirSync(folder, { recursive: true });
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_MB}m,mode=755`, 'tmpfs', folder], {
      stdio: 'pipe',
    });
  } catch {
    return undefined;
  }
  // Lazily: a server that was killed may still be ending.
  // Before its folder is removed.
  process.prependOnceListener('exit', () => execFileSync('umount', ['--lazy', folder]));
  const filler = path.join(folder, 'filler');
  return {
    folder,
    fill() {
      const { bavail, bsize } = statfsSync(folder);
      const block = Buffer.alloc(BLOCK_BYTES);
      try {
        for (let left = bavail * bsize; left > 0; left -= BLOCK_BYTES)
          writeFileSync(filler, block.subarray(0, Math.min(left, BLOCK_BYTES)), { flag: 'a' });
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
      }
    },
    free: () => rmSync(filler, { force: true }),
  };
}
