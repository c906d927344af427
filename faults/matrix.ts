/**
 * `npm run tool -- faults/matrix.ts`: a short run of the fault suite with each combination of servers that the service is to work with. Each is
 * a separate command, so that one can be repeated by itself.
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { format } from 'prettier';
import { report, runProgram } from '../dev/program.ts';
import { TEMPORAL_VERSIONS } from '../dev/go-programs.ts';
import { findRedis } from '../dev/servers/redis.ts';
import { findRedis8, findValkey } from '../dev/servers/other-redis.ts';
import type { Result } from './report.ts';
import { machineOf, serversOf } from './report.ts';
import type { Verdict } from './ledger/verdict.ts';
import { isClean } from './ledger/verdict.ts';

const WIDTH = 120;

/** What is different: its name, and how the fault suite is told; a function for what must be found first. */
interface Choice {
  name: string;
  options(): Promise<string[]>;
}

const DIMENSIONS: readonly (readonly Choice[])[] = [
  TEMPORAL_VERSIONS.map((version) => ({
    name: `Temporal ${version.replace(/\.\d+$/, '')}`,
    options: async () => ['--cluster', '--temporal', version],
  })),
  [
    { name: 'PostgreSQL 15', options: async () => ['--postgres', debianPostgres('15')] },
    { name: 'PostgreSQL 18', options: async () => [] },
  ],
  [
    { name: 'Redis 7', options: async () => ['--redis', await findRedis(report)] },
    { name: 'Redis 8', options: async () => ['--redis', await findRedis8(report)] },
    { name: 'Valkey 8', options: async () => ['--redis', await findValkey(report)] },
  ],
];

const HELP = `Usage: npm run tool -- faults/matrix.ts [options]

Runs the fault suite, shortly, in mode child with each combination of ${DIMENSIONS.map((choices) => choices.map(({ name }) => name).join(' and ')).join(', ')}, and
prints a table.

  --only text      cells whose names contain it, such as "Valkey 8"
  --intents n      of each cell; default 300
  --seconds n      of each cell; default 40
  --faults n       of each cell; default 12
  --seed s         of each cell; default matrix
  --help           this text
`;

const { values: options } = parseArgs({
  options: {
    only: { type: 'string', default: '' },
    intents: { type: 'string', default: '300' },
    seconds: { type: 'string', default: '40' },
    faults: { type: 'string', default: '12' },
    seed: { type: 'string', default: 'matrix' },
    help: { type: 'boolean', default: false },
  },
});

interface Cell {
  name: string;
  result?: Result;
  /** Why there is no result. */
  problem?: string;
}

async function main(): Promise<boolean> {
  if (options.help) {
    process.stdout.write(HELP);
    return true;
  }
  const dir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-matrix-'));
  const cells: Cell[] = [];
  try {
    for (const choices of combinations()) {
      const name = choices.map((choice) => choice.name).join(', ');
      if (name.includes(options.only)) cells.push(await tried(name, choices, path.join(dir, 'result.json')));
    }
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
  const page = await format(pageOf(cells), { parser: 'markdown', printWidth: WIDTH });
  process.stdout.write(`\n${page}`);
  return cells.every(isGood);
}

const combinations = (): Choice[][] =>
  DIMENSIONS.reduce<Choice[][]>(
    (all, choices) => all.flatMap((some) => choices.map((choice) => [...some, choice])),
    [[]],
  );

async function tried(name: string, choices: readonly Choice[], file: string): Promise<Cell> {
  report(`== ${name}`);
  rmSync(file, { force: true });
  try {
    const args = (await Promise.all(choices.map((choice) => choice.options()))).flat();
    const { seed, intents, seconds, faults } = options;
    const sizes = Object.entries({ seed, intents, seconds, faults }).flatMap(([name, value]) => [
      `--${name}`,
      value,
    ]);
    await fault(['--mode', 'child', ...sizes, ...args, '--json', file]);
    return existsSync(file)
      ? { name, result: JSON.parse(readFileSync(file, 'utf8')) as Result }
      : { name, problem: 'it broke down' };
  } catch (error) {
    return { name, problem: (error as Error).message };
  }
}

/** Resolves when the run has ended, however it did. */
const fault = (args: readonly string[]): Promise<void> =>
  new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [path.join(import.meta.dirname, 'main.ts'), ...args], {
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    child.once('error', reject);
    child.once('close', () => resolve());
  });

/** @throws Error when Debian's package is not installed. */
function debianPostgres(major: string): string {
  const folder = `/usr/lib/postgresql/${major}/bin`;
  if (!existsSync(path.join(folder, 'initdb')))
    throw new Error(`there is no ${folder}: install postgresql-${major}`);
  return folder;
}

const chargesOf = (result: Result, charge: keyof Pick<Verdict, 'lost' | 'doubled'>): number =>
  Object.values(result.works).reduce((sum, verdict) => sum + verdict[charge].length, 0);
const failedTasksOf = ({ failedTasks }: Result): number =>
  Object.values(failedTasks).reduce((sum, count) => sum + count, 0);
const causesOf = ({ failedTasks }: Result): string => {
  const causes = Object.keys(failedTasks);
  return causes.length === 0 ? '' : ` (${causes.join('; ')})`;
};
/** How much of the load would have excused a double is nothing that a run of seconds can say. */
const isGood = ({ result }: Cell): boolean =>
  result !== undefined &&
  Object.values(result.works).every(isClean) &&
  result.leaked.length + result.crashes.length + failedTasksOf(result) === 0;

function pageOf(cells: readonly Cell[]): string {
  const rows = cells.map(({ name, result, problem }) => {
    if (!result) return `| ${name} | - | - | - | - | - | ${problem} |`;
    const faults = result.faults.reduce((sum, { count }) => sum + count, 0);
    const verdict = isGood({ name, result }) ? 'good' : 'BAD';
    return `| ${serversOf(result)} | ${result.dispatch} | ${faults} | ${chargesOf(result, 'lost')} | ${chargesOf(result, 'doubled')} | ${failedTasksOf(result)}${causesOf(result)} | ${verdict} |`;
  });
  return `# Which servers the service was tried with

Printed by \`npm run tool -- faults/matrix.ts\`.

- When and where: ${new Date().toISOString().slice(0, 10)}, ${machineOf()}
- Each row is a run of the [fault suite](../CONTRIBUTING.md#tests) with ${options.intents} intents and as much of every other kind
  of work, over ${options.seconds} seconds, with Temporal as a cluster of two processes of each service on PostgreSQL, any of which may be
  killed. Versions are as the servers say.
- \`failed tasks\`: of workflows, as their histories have them, but for those that the server calls off itself.

| servers | mode | faults | lost | doubled | failed tasks | result |
| --- | --- | --- | --- | --- | --- | --- |
${rows.join('\n')}
`;
}

await runProgram(main);
