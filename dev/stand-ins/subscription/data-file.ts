/** What a stand-in router keeps across restarts of its process: its certificate, and what it holds. */
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';

/** So that a batch of changes is one write. */
const SAVE_AFTER_MS = 50;

export interface RouterDataFile<State> {
  /** As it was created once. */
  certificate: unknown;
  /** Undefined while nothing was saved. */
  state: State | undefined;
  /** Writes it soon. Without a file, nothing is kept. */
  save(read: () => State): void;
  /** Writes what is still to be written. */
  flush(): void;
}

/** @param file default: none, so that everything ends with the process. */
export async function openRouterDataFile<State>(
  file: string | undefined,
  createCertificate: () => Promise<unknown>,
): Promise<RouterDataFile<State>> {
  const kept =
    file !== undefined && existsSync(file)
      ? (JSON.parse(readFileSync(file, 'utf8')) as { certificate: unknown; state?: State })
      : undefined;
  const certificate = kept?.certificate ?? (await createCertificate());
  let unsaved: (() => State) | undefined;
  let timer: NodeJS.Timeout | undefined;

  // Clients know a router by its certificate, so even an empty router keeps one.
  if (!kept) write(undefined);

  function write(state: State | undefined): void {
    if (file === undefined) return;
    // Whole or not at all: a stand-in may be killed at any time. It holds keys.
    writeFileSync(`${file}.new`, JSON.stringify({ certificate, state }), { mode: 0o600 });
    renameSync(`${file}.new`, file);
  }

  function flush(): void {
    clearTimeout(timer);
    timer = undefined;
    if (unsaved) write(unsaved());
    unsaved = undefined;
  }

  return {
    certificate,
    state: kept?.state,
    save(read) {
      if (file === undefined) return;
      unsaved = read;
      timer ??= setTimeout(flush, SAVE_AFTER_MS).unref();
    },
    flush,
  };
}
