/** A folder for the files of one test file, which goes at its end. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** To be called at the top of a file or in a `describe`. @param name begins the name of the folder. */
export function scratchFolder(name: string) {
  const dir = mkdtempSync(path.join(tmpdir(), `galaxy-notify-${name}-`));
  afterAll(() => rmSync(dir, { recursive: true, force: true }));
  return {
    dir,
    /** Writes a file. @returns its path. */
    write(file: string, content: string | Buffer): string {
      const place = path.join(dir, file);
      writeFileSync(place, content, { mode: 0o600 });
      return place;
    },
  };
}
