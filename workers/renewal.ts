/**
 * Secrets and certificates are loaded again when their files change, without a restart. Orchestrators replace files by
 * links, which cannot be watched reliably, so the files are read every few seconds.
 *
 * Each part that uses such values tries the new ones before it gives up the old ones. If they are malformed, or the server
 * refuses them, the part keeps the old values, reports the refusal and tries again later. Therefore the file and its server
 * may change in any order.
 */
import { isDeepStrictEqual } from 'node:util';
import type { Meter } from '@opentelemetry/api';
import type { Logger } from 'pino';
import type { GaugeRead } from '../activities/metrics.ts';
import { observeReads } from '../activities/metrics.ts';
import { reasonOf } from '../activities/reason.ts';
import { watchEvery } from '../api/watch.ts';
import type { ConfigFile, ReadFile } from '../config/files.ts';
import { certificateExpiries, readFromDisk } from '../config/files.ts';
import type { Config } from '../config/load.ts';
import { ConfigError } from '../config/variables.ts';
import type { ProcessContext, RenewablePart } from './context.ts';

/** A change that was not taken. */
interface RefusedChange {
  variable: string;
  path: string;
  reason: string;
}

type Renewal = ReturnType<typeof startRenewal>;

/** What is in each file of a look. */
type Texts = ReadonlyMap<ConfigFile, string | undefined>;

const EVERY_MS = 3_000;

/** Looks at the files of `config` until it is stopped. */
export function startRenewal(
  config: Config,
  parts: readonly RenewablePart[],
  { log, everyMs = EVERY_MS }: { log: Logger; everyMs?: number },
) {
  /** What is in use: the contents of the files that each part has taken. */
  let current = config;
  const refusals = new Map<RenewablePart, RefusedChange[]>();
  const { stop } = watchEvery(everyMs, renewChanged, (error) =>
    log.error({ reason: reasonOf(error) }, 'files not looked at'),
  );
  /** What is in use. */
  const files = (): readonly ConfigFile[] => current.files;
  return { refused, files, stop };

  /** Changes that are not in use now, although their files are there. */
  function refused(): RefusedChange[] {
    return [...refusals.values()].flat();
  }

  async function renewChanged(): Promise<void> {
    const now = new Map(current.files.map((file) => [file, textOf(file)]));
    const changed = [...now].flatMap(([file, text]) => (text === file.text ? [] : [file]));
    for (const part of parts) {
      const mine = changed.filter((file) => isOf(part, file));
      if (mine.length === 0) refusals.delete(part);
      else await renew(part, mine, now);
    }
  }

  async function renew(part: RenewablePart, changed: readonly ConfigFile[], now: Texts): Promise<void> {
    try {
      const next = current.reread(readerFor(part, now));
      await part.renew(next);
      current = next;
      refusals.delete(part);
      log.info({ variables: variablesOf(changed) }, `${part.what} uses the new values of its files`);
    } catch (error) {
      refuse(part, changed, error instanceof ConfigError ? error.problems.join('; ') : reasonOf(error));
    }
  }

  /** New contents for one part, the same for all parts that share a file; the others keep what they use. */
  function readerFor(part: RenewablePart, now: Texts): ReadFile {
    return (path, variable) => {
      const isIt = (file: ConfigFile) => file.path === path && file.variable === variable;
      const known = isOf(part, { variable })
        ? now.get([...now.keys()].find(isIt)!)
        : current.files.find(isIt)?.text;
      return known ?? readFromDisk(path, variable);
    };
  }

  /** The same refusal is logged once: a gauge says how long it lasts. */
  function refuse(part: RenewablePart, changed: readonly ConfigFile[], reason: string): void {
    const changes = changed.map(({ variable, path }) => ({ variable, path, reason }));
    const isSaid = isDeepStrictEqual(refusals.get(part), changes);
    refusals.set(part, changes);
    if (isSaid) return;
    log.error({ variables: variablesOf(changed), reason }, `${part.what} keeps the old values of its files`);
  }
}

const isOf = ({ variables }: RenewablePart, { variable }: Pick<ConfigFile, 'variable'>): boolean =>
  variables.some((name) => variable.startsWith(name));

const variablesOf = (files: readonly ConfigFile[]): string[] => [
  ...new Set(files.map(({ variable }) => variable)),
];

function textOf({ path, variable }: ConfigFile): string | undefined {
  try {
    return readFromDisk(path, variable);
  } catch {
    return undefined;
  }
}

/** Renews secrets and certificates of a process from here on. */
export function watchFiles({
  config,
  log,
  meter,
  open,
  renewable,
}: Pick<ProcessContext, 'config' | 'log' | 'meter' | 'open' | 'renewable'>): void {
  const renewal = startRenewal(config, renewable, { log });
  open.add('gauges of files', observeFiles(meter, { log, renewal }));
  open.add('renewal of secrets', renewal.stop);
}

const EXPIRY = 'notification.certificate.expires_in';
const REFUSALS = 'notification.configuration.refused';

/** @returns ends the observation. */
export function observeFiles(
  meter: Meter,
  { log, renewal }: { log: Logger; renewal: Pick<Renewal, 'files' | 'refused'> },
): () => void {
  const files: GaugeRead = {
    gauges: {
      [EXPIRY]: {
        description: 'Time until the first certificate of a variable expires; below zero when it has',
        unit: 's',
      },
      [REFUSALS]: {
        description: 'Files of secrets and certificates that have changed and could not be taken into use',
      },
    },
    read: async () => [
      ...byVariable(EXPIRY, certificateExpiries(renewal.files()), (expiries) =>
        Math.min(...expiries.map(({ expiresAt }) => (expiresAt - Date.now()) / 1_000)),
      ),
      ...byVariable(REFUSALS, renewal.refused(), ({ length }) => length),
    ],
  };
  return observeReads(meter, log, [files]);
}

/** One measurement for each variable, which may name several files. */
const byVariable = <File extends { variable: string }>(
  gauge: string,
  files: readonly File[],
  valueOf: (files: File[]) => number,
) =>
  [...Map.groupBy(files, ({ variable }) => variable)].map(([variable, ofVariable]) => ({
    ...{ gauge, value: valueOf(ofVariable) },
    attributes: { variable },
  }));
