/** The command line of the fault suite. Pure but for the seed that is drawn when none is given. */
import { randomInt } from 'node:crypto';
import { parseArgs } from 'node:util';
import { SelfExplanatoryError } from '../api/errors.ts';

export const WORKS = ['intent', 'mobile-push', 'symbol-config', 'account-callback', 'subscription'] as const;
export type WorkName = (typeof WORKS)[number];

export const HELP = `Usage: npm run test:faults [-- options]

Starts Redis, PostgreSQL, Temporal and two processes of the service, gives them work of every kind, kills and restarts
all of them at random, and cuts, delays and half-opens the network in between. At the end a ledger holds what went in
against what came out. The exit code is 0 only if nothing is lost, nothing doubled and nothing left undone.

  --intents n      intents that are published; default 5000. The other kinds of work grow with it
  --seconds n      over how long, and with it the faults; default: one second for every 25 intents
  --faults n       how many faults; default: one for every 5 seconds
  --only names     kinds of work, comma-separated: ${WORKS.join(', ')}
  --encrypted      with NOTIFICATION_PAYLOAD_KEYS; default: the seed decides
  --plain          without
  --flood          instead of all that: 100,000 entries while Temporal is down, and what memory that takes
  --json FILE      write the result to a file as well
  --report FILE    write it as Markdown as well
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
  /** Undefined: the seed decides. */
  isEncrypted: boolean | undefined;
  flood: boolean;
  jsonFile?: string;
  reportFile?: string;
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
  return {
    seed: given.seed ?? String(randomInt(1, 1_000_000)),
    intents,
    seconds,
    faults: countOf('--faults', given.faults ?? String(Math.ceil(seconds / 5))),
    only: worksOf(given.only),
    isEncrypted: chosen ? given.encrypted : undefined,
    flood: given.flood,
    ...(given.json === undefined ? {} : { jsonFile: given.json }),
    ...(given.report === undefined ? {} : { reportFile: given.report }),
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
        json: text,
        report: text,
        encrypted: flag,
        plain: flag,
        flood: flag,
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

function worksOf(text: string | undefined): readonly WorkName[] {
  if (text === undefined) return WORKS;
  const names = text.split(',').map((name) => name.trim());
  const unknown = names.filter((name) => !WORKS.some((work) => work === name));
  if (unknown.length > 0) throw new SelfExplanatoryError(`--only does not know ${unknown.join(', ')}`);
  return WORKS.filter((work) => names.includes(work));
}

/** What repeats a run. */
export function commandOf({ seed, intents, seconds, faults, only, isEncrypted }: Options): string {
  return [
    `FAULT_SEED=${seed} npm run test:faults -- --intents ${intents} --seconds ${seconds} --faults ${faults}`,
    ...(only.length === WORKS.length ? [] : [`--only ${only.join()}`]),
    ...(isEncrypted === undefined ? [] : [isEncrypted ? '--encrypted' : '--plain']),
  ].join(' ');
}
