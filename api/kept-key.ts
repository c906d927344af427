/** The key that seals secrets at rest where none is configured: made once for a data directory, and kept in it. */
import { randomBytes } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { KeyBoxKey } from './key-box.ts';

const KEY_FILE = 'subscription.key';
const KEY_BYTES = 32;

/** @throws Error when the directory cannot be written to. */
export function keptKey(dataDir: string): KeyBoxKey {
  const file = path.join(dataDir, KEY_FILE);
  mkdirSync(dataDir, { recursive: true });
  try {
    // Whoever comes second takes the key of the first.
    writeFileSync(file, randomBytes(KEY_BYTES).toString('base64'), { mode: 0o600, flag: 'wx' });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  return { id: 'local', key: Buffer.from(readFileSync(file, 'utf8'), 'base64') };
}
