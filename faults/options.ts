/** The command line of the fault suite. Pure but for the seed that is drawn when none is given. */
import { randomInt } from 'node:crypto';
import { parseArgs } from 'node:util';
import { SelfExplanatoryError } from '../api/errors.ts';
import type { TemporalVersion } from '../dev/go-programs.ts';
import { TEMPORAL_VERSIONS } from '../dev/go-programs.ts';
import type { LossName, OrdinaryKind } from './fault-kinds.ts';
import { LOSSES, ORDINARY_KINDS } from './fault-kinds.ts';

export const WORKS = ['intent', 'mobile-push', 'symbol-config', 'account-callback', 'subscription'] as const;
export type WorkName = (typeof WORKS)[number];

/** How intents are worked off: a mode of dispatch, or many by one workflow. */
export const MODES = ['child', 'on_failure', 'direct'] as const;
export type ModeName = (typeof MODES)[number];

/** What producers are told. */
export const OUTCOMES = ['all', 'ends', 'none'] as const;
export type OutcomesName = (typeof OUTCOMES)[number];

export const HELP = `Usage: npm run test:faults [-- options]

Starts Redis, PostgreSQL, Temporal and two processes of the service, gives them work of every kind, kills and restarts
all of them at random, and cuts, delays and half-opens the network in between. At the end a ledger holds what went in
against what came out. The exit code is 0 only if nothing is lost, nothing doubled and nothing left undone.

  --intents n      intents that are published; default 5000. The other kinds of work grow with it
  --seconds n      over how long, and with it the faults; default: one second for every 25 intents
  --faults n       how many faults; default: one for every 5 seconds
  --only names     kinds of work, comma-separated: ${WORKS.join(', ')}
  --kinds names    kinds of faults, comma-separated, such as pause-service; default: all
  --losses names   stores that forget something in mid-work, comma-separated: ${LOSSES.join(', ')}; or all.
                   failover is a Redis replica that lags and takes over; namespace an empty Temporal; the others are put
                   back to what they had on disk a moment before
  --cluster        Temporal as a cluster on PostgreSQL, whose processes are killed one by one as well: two frontends, two of
                   history, two of matching, one worker, 16 shards; the first time its programs are built, with Go
  --temporal v     version of the cluster: ${TEMPORAL_VERSIONS.join(' or ')}; default: the newer one
  --postgres DIR   where another PostgreSQL has postgres and initdb; default: the embedded one
  --redis FILE     another redis-server or valkey-server; default: the one that this machine has
  --mode name      how intents are worked off: ${MODES.join(', ')}; default: the seed decides
  --outcomes what  NOTIFICATION_OUTCOMES: all, ends or none; default: all
  --encrypted      with NOTIFICATION_PAYLOAD_KEYS; default: the seed decides
  --plain          without
  --flood          instead of all that: 100,000 entries while Temporal is down, and what memory that takes
  --restart-redis  instead of all that: Redis restarts under 50 push events a second; none may be handed off twice
  --json FILE      write the result to a file as well
  --keep           leave data and logs behind, and say where
  --help           this text

FAULT_SEED (or --seed) chooses the run: which faults, when, how long, and every input. Without it one is drawn, and shown. A run that
fails shows the command that repeats it.
`;

export interface Options {
  seed: string;
  intents: number;
  seconds: number;
  faults: number;
  only: readonly WorkName[];
  losses: readonly LossName[];
  /** Undefined: all. */
  kinds: readonly OrdinaryKind[] | undefined;
  /** Version of a cluster; absent: the embedded Temporal. */
  cluster?: TemporalVersion;
  /** A folder. */
  postgres?: string;
  /** A program. */
  redis?: string;
  /** Absent: the seed decides. */
  mode?: ModeName;
  outcomes: OutcomesName;
  /** Undefined: the seed decides. */
  isEncrypted: boolean | undefined;
  flood: boolean;
  restartRedis: boolean;
  jsonFile?: string;
  keep: boolean;
  help: boolean;
}

/** @throws SelfExplanatoryError that names what is wrong. */
export function parseOptions(args: readonly string[]): Options {
  const given = valuesOf(args);
  const intents = countOf('--intents', given.intents ?? '5000');
  const seconds = countOf('--seconds', given.seconds ?? String(Math.max(20, Math.ceil(intents / 25))));
  if (given.encrypted && given.plain)
    throw new SelfExplanatoryError('--encrypted and --plain exclude each other');
  const chosen = given.encrypted || given.plain;
  const [mode, ...more] = namesOf('--mode', given.mode, MODES, []);
  const [outcomes = OUTCOMES[0], ...further] = namesOf('--outcomes', given.outcomes, OUTCOMES, []);
  if (more.length > 0) throw new SelfExplanatoryError('--mode takes one name');
  if (further.length > 0) throw new SelfExplanatoryError('--outcomes takes one name');
  const [version = TEMPORAL_VERSIONS.at(-1)!, ...versions] = namesOf(
    '--temporal',
    given.temporal,
    TEMPORAL_VERSIONS,
    [],
  );
  if (versions.length > 0) throw new SelfExplanatoryError('--temporal takes one version');
  if (given.temporal !== undefined && !given.cluster)
    throw new SelfExplanatoryError('--temporal is the version of a cluster: add --cluster');
  return {
    seed: given.seed ?? String(randomInt(1, 1_000_000)),
    intents,
    seconds,
    faults: countOf('--faults', given.faults ?? String(Math.ceil(seconds / 5))),
    only: namesOf('--only', given.only, WORKS, WORKS),
    losses: given.losses === 'all' ? LOSSES : namesOf('--losses', given.losses, LOSSES, []),
    kinds: given.kinds === undefined ? undefined : namesOf('--kinds', given.kinds, ORDINARY_KINDS, []),
    ...(given.cluster ? { cluster: version } : {}),
    ...(given.postgres === undefined ? {} : { postgres: given.postgres }),
    ...(given.redis === undefined ? {} : { redis: given.redis }),
    ...(mode === undefined ? {} : { mode }),
    outcomes,
    isEncrypted: chosen ? given.encrypted : undefined,
    flood: given.flood,
    restartRedis: given['restart-redis'],
    ...(given.json === undefined ? {} : { jsonFile: given.json }),
    keep: given.keep,
    help: given.help,
  };
}

function valuesOf(args: readonly string[]) {
  const flag = { type: 'boolean', default: false } as const;
  const text = { type: 'string' } as const;
  try {
    return parseArgs({
      args: [...args],
      options: {
        seed: text,
        intents: text,
        seconds: text,
        faults: text,
        only: text,
        losses: text,
        kinds: text,
        temporal: text,
        postgres: text,
        redis: text,
        mode: text,
        outcomes: text,
        json: text,
        report: text,
        encrypted: flag,
        plain: flag,
        flood: flag,
        'restart-redis': flag,
        cluster: flag,
        keep: flag,
        help: flag,
      },
    }).values;
  } catch (error) {
    throw new SelfExplanatoryError(`${(error as Error).message}\n\n${HELP}`, { cause: error });
  }
}

function countOf(option: string, text: string): number {
  if (!/^[1-9]\d{0,6}$/.test(text))
    throw new SelfExplanatoryError(`${option} must be a whole number (got ${text})`);
  return Number(text);
}

function namesOf<Name extends string>(
  option: string,
  text: string | undefined,
  known: readonly Name[],
  otherwise: readonly Name[],
): readonly Name[] {
  if (text === undefined) return otherwise;
  const names = text.split(',').map((name) => name.trim());
  const unknown = names.filter((name) => !known.some((one) => one === name));
  if (unknown.length > 0) throw new SelfExplanatoryError(`${option} does not know ${unknown.join(', ')}`);
  return known.filter((one) => names.includes(one));
}

/** What repeats a run. */
export function commandOf(options: Options): string {
  const { seed, intents, seconds, faults, only, losses, kinds, cluster, postgres, redis } = options;
  const { mode, outcomes, isEncrypted } = options;
  return [
    `FAULT_SEED=${seed} npm run test:faults -- --intents ${intents} --seconds ${seconds} --faults ${faults}`,
    ...(only.length === WORKS.length ? [] : [`--only ${only.join()}`]),
    ...(losses.length === 0 ? [] : [`--losses ${losses.join()}`]),
    ...(kinds === undefined ? [] : [`--kinds ${kinds.join()}`]),
    ...(cluster === undefined ? [] : [`--cluster --temporal ${cluster}`]),
    ...(postgres === undefined ? [] : [`--postgres ${postgres}`]),
    ...(redis === undefined ? [] : [`--redis ${redis}`]),
    ...(mode === undefined ? [] : [`--mode ${mode}`]),
    ...(outcomes === OUTCOMES[0] ? [] : [`--outcomes ${outcomes}`]),
    ...(isEncrypted === undefined ? [] : [isEncrypted ? '--encrypted' : '--plain']),
  ].join(' ');
}
