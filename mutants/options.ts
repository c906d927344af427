/** The command line of the mutants. Pure. */
import { parseArgs } from 'node:util';
import { SelfExplanatoryError } from '../api/errors.ts';

export const HELP = `Usage: npm run test:mutants [-- options]

Changes the product in one small wrong way at a time, in a copy of this checkout, and runs the shortest suite that
should notice. A mutant that no test notices survives: then a test is missing.

  --only ids      these mutants, comma-separated; the beginning of an id does
  --changed BASE  those whose file or suite differs from the commit BASE, in an order that HEAD decides
  --most-seconds N  begin no suite after N seconds, and say how many mutants are left out
  --json FILE     write every result to a file as well
  --propose N     try N places that mutants/generated.txt lacks, of which --only says the beginning of the id, and print
                  the lines of those that a test notices
  --reach FILE    which tests reach which statement, as mutants/reach.mjs notes it; --propose wants it for SQL and Lua
  --nodes F:NAME  the nodes of a declaration of a file, as a mutant names them: --nodes workflows/policies.ts:ladderDelayMs
  --list          name the mutants, and run nothing
  --help          this text

Progress goes to standard error, the table to standard output. The exit code is 1 when fewer than 95 % die, when a suite
fails without a mutant, and when something breaks; 130 after Ctrl-C.
`;

export interface Options {
  only: readonly string[];
  changedSince?: string;
  mostSeconds: number;
  jsonFile?: string;
  propose?: number;
  reachFile?: string;
  nodes?: string;
  list: boolean;
  help: boolean;
}

/** @throws SelfExplanatoryError that names what is wrong. */
export function parseOptions(args: readonly string[]): Options {
  const { changed, json, only, propose, reach, nodes, list, help, ...values } = valuesOf(args);
  return {
    list,
    help,
    only: only === undefined ? [] : only.split(','),
    ...(changed === undefined ? {} : { changedSince: changed }),
    mostSeconds: numberOf('most-seconds', values['most-seconds'] ?? 'Infinity'),
    ...(json === undefined ? {} : { jsonFile: json }),
    ...(propose === undefined ? {} : { propose: numberOf('propose', propose) }),
    ...(reach === undefined ? {} : { reachFile: reach }),
    ...(nodes === undefined ? {} : { nodes }),
  };
}

function numberOf(option: string, value: string): number {
  const number = Number(value);
  if (number >= 0) return number;
  throw new SelfExplanatoryError(`--${option} ${value} is no number of at least 0`);
}

function valuesOf(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        only: { type: 'string' },
        changed: { type: 'string' },
        'most-seconds': { type: 'string' },
        propose: { type: 'string' },
        reach: { type: 'string' },
        nodes: { type: 'string' },
        json: { type: 'string' },
        list: { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
      },
    }).values;
  } catch (error) {
    throw new SelfExplanatoryError(`${error instanceof Error ? error.message : String(error)}\n\n${HELP}`);
  }
}
