/** The command line of the benchmark. Pure. */
import { parseArgs } from 'node:util';
import { SelfExplanatoryError } from '../api/errors.ts';
import type { Measurement } from './measurement.ts';

export const HELP = `Usage: npm run bench [-- options]

Starts everything on free ports with a data folder that is removed at the end, and measures what a notification
costs: each row against a target or against the cheapest that Temporal allows, in the same run. Read bench/README.md.

  --quick         the ratios only, with fewer intents and without what takes long, in less than 6 minutes on a quiet
                  machine
  --only names    these rows or measurements, comma-separated; the beginning of a name does
  --rounds n      rounds of each measurement, of which the median counts; default 3
  --old-records n what scale.retention deletes, of ten times as many; default 1000000, which takes some 20 GB on disk
  --json FILE     write the machine, every row and its raw rounds to a file as well
  --cluster       Temporal as a cluster on PostgreSQL, two processes of each service, instead of the embedded one on
                  SQLite: rows begin with "cluster." and have no targets; throughput unless --only says otherwise
  --profile DIR   run the service under Node's CPU profiler, keep the profiles in DIR, and show where its time goes;
                  measures throughput unless --only says otherwise
  --list          name the rows and their targets
  --help          this text

Progress goes to standard error, the table to standard output. The exit code is 0 also when a target is missed: the
table says so. It is 1 when something breaks and 130 after Ctrl-C.
`;

export interface Options {
  quick: boolean;
  cluster: boolean;
  /** Names or their beginnings; empty means all. */
  only: readonly string[];
  rounds: number;
  /** Records that retention deletes. */
  oldRecords: number;
  jsonFile?: string;
  profileDir?: string;
  list: boolean;
  help: boolean;
}

/** @throws SelfExplanatoryError that names what is wrong, and where to look. */
export function parseOptions(args: readonly string[]): Options {
  const { json, profile, only, rounds, 'old-records': oldRecords, ...flags } = valuesOf(args);
  return {
    ...flags,
    only: namesOf(only),
    rounds: countOf('--rounds', rounds, 999),
    oldRecords: countOf('--old-records', oldRecords, 10_000_000),
    ...(json === undefined ? {} : { jsonFile: json }),
    ...(profile === undefined ? {} : { profileDir: profile }),
  };
}

function valuesOf(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        quick: { type: 'boolean', default: false },
        cluster: { type: 'boolean', default: false },
        only: { type: 'string' },
        rounds: { type: 'string', default: '3' },
        'old-records': { type: 'string', default: '1000000' },
        json: { type: 'string' },
        profile: { type: 'string' },
        list: { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
      },
    }).values;
  } catch (error) {
    throw new SelfExplanatoryError(`${(error as Error).message}\n\n${HELP}`, { cause: error });
  }
}

function namesOf(text: string | undefined): string[] {
  if (text === undefined) return [];
  const names = text.split(',').map((name) => name.trim());
  if (names.includes('')) throw new SelfExplanatoryError('--only must name rows; see --list');
  return names;
}

function countOf(option: string, text: string, most: number): number {
  const count = /^\d{1,9}$/.test(text) ? Number(text) : 0;
  if (count >= 1 && count <= most) return count;
  throw new SelfExplanatoryError(`${option} must be a whole number from 1 to ${most} (got ${text})`);
}

/** What is to be measured, and which rows of it are to be shown. */
export interface Selection {
  measurements: Measurement[];
  isShown(row: string): boolean;
}

/** @throws SelfExplanatoryError for a name that no row begins with. */
export function select(
  all: readonly Measurement[],
  { quick, only }: Pick<Options, 'quick' | 'only'>,
): Selection {
  const rows = all.flatMap((measurement) => measurement.rows.map(({ name }) => name));
  const unknown = only.filter((name) => !rows.some((row) => row.startsWith(name)));
  if (unknown.length > 0)
    throw new SelfExplanatoryError(`no row begins with ${unknown.join(' or ')}; see --list`);
  const isShown = (row: string) => only.length === 0 || only.some((name) => row.startsWith(name));
  const measurements = all.filter(
    ({ rows, isQuick }) => rows.some(({ name }) => isShown(name)) && (isQuick || !quick || only.length > 0),
  );
  return { measurements, isShown };
}
