/** `npm run test:mutants`: whether the tests notice small wrong changes to the product. */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { report, runProgram } from '../dev/program.ts';
import { MUTANTS, affectedMutants } from './list.ts';
import type { Mutant, Suite } from './mutant.ts';
import { nameOf } from './mutant.ts';
import { HELP, parseOptions } from './options.ts';
import { describedNodes } from './places.ts';
import { propose } from './propose.ts';
import type { Tried } from './report.ts';
import { WANTED, isKilled, markdownOf, shareOf } from './report.ts';
import type { Scratch } from './scratch.ts';
import { ROOT, createScratch } from './scratch.ts';
import type { Selection } from './suites.ts';
import { createSuites } from './suites.ts';

async function main(): Promise<boolean> {
  const options = parseOptions(process.argv.slice(2));
  if (options.help) {
    process.stdout.write(HELP);
    return true;
  }
  if (options.nodes !== undefined) {
    const [file, declaration = ''] = options.nodes.split(':') as [string, string?];
    for (const line of describedNodes(readFileSync(file, 'utf8'), declaration))
      process.stdout.write(`${line}\n`);
    return true;
  }
  const isWanted = (id: string): boolean =>
    options.only.length === 0 || options.only.some((part) => id.startsWith(part));
  const { propose: count, reachFile } = options;
  if (count !== undefined) {
    await inScratch((scratch, suites) => propose({ count, isWanted, reachFile }, scratch, suites));
    return true;
  }
  const wanted = MUTANTS.filter(({ id }) => isWanted(id));
  const mutants =
    options.changedSince === undefined ? sorted(wanted) : changedSince(options.changedSince, wanted);
  if (options.list) {
    for (const { id, wrong, what } of mutants) process.stdout.write(`${id}  ${wrong}: ${what}\n`);
    return true;
  }
  if (mutants.length === 0) {
    report('no mutant applies');
    return true;
  }
  let tried: readonly Tried[] = [];
  const useless = await tryAll(mutants, options.mostSeconds, (soFar) => {
    tried = soFar;
    if (options.jsonFile !== undefined)
      writeFileSync(options.jsonFile, `${JSON.stringify(tried, null, 2)}\n`);
  });
  process.stdout.write(`\n${markdownOf(tried)}`);
  for (const problem of useless) report(problem);
  return useless.length === 0 && shareOf(tried) >= WANTED;
}

/** Sorted by suite. Suites without servers come first: they give a result soon. */
function sorted(mutants: Mutant[]): Mutant[] {
  const rank = ({ suite }: Mutant) => `${suite.tier === 'service' ? 1 : 0} ${nameOf(suite)}`;
  return mutants.sort((one, other) => (rank(one) < rank(other) ? -1 : 1));
}

function changedSince(base: string, mutants: readonly Mutant[]): Mutant[] {
  const git = (...args: string[]) => execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' });
  const files = new Set(git('diff', '--name-only', base).split('\n'));
  return affectedMutants(mutants, files, git('rev-parse', 'HEAD'));
}

/** Does `work` in a copy of the checkout, and removes the copy and its servers then. */
async function inScratch<Result>(
  work: (scratch: Scratch, suites: ReturnType<typeof createSuites>) => Promise<Result>,
): Promise<Result> {
  const scratch = createScratch();
  const suites = createSuites(scratch.dir);
  // Ending through `exit` takes the servers along, which a signal by itself would leave behind.
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      scratch.remove();
      process.exit(130);
    });
  }
  try {
    return await work(scratch, suites);
  } finally {
    await suites.stop();
    scratch.remove();
  }
}

/** @returns suites that fail, or have no test, before anything is changed: they prove nothing, and their mutants are left out. */
const tryAll = (
  mutants: readonly Mutant[],
  mostSeconds: number,
  onTried: (tried: readonly Tried[]) => void,
): Promise<string[]> =>
  inScratch(async (scratch, suites) => {
    const tried: Tried[] = [];
    const problems = new Map<string, string | undefined>();
    const clock = createClock();
    const lastBeginMs = performance.now() + mostSeconds * 1_000;
    for (const mutant of mutants) {
      if (performance.now() > lastBeginMs) {
        report(`LEFT OUT ${mutants.length - tried.length} of ${mutants.length} mutants, for lack of time`);
        break;
      }
      const { file } = mutant.suite;
      if (!problems.has(file)) {
        const ofFile = mutants.map(({ suite }) => suite).filter((suite) => suite.file === file);
        const problem = await problemOf(ofFile, suites);
        problems.set(file, problem);
        if (problem !== undefined) report(problem);
      }
      if (problems.get(file) !== undefined) continue;
      const undo = scratch.apply(mutant);
      const result = await suites.run(selectionOf([mutant.suite]), mutant.file);
      undo();
      tried.push({ mutant, result });
      onTried(tried);
      const verdict = isKilled({ mutant, result }) ? 'dies' : 'SURVIVES';
      const left = clock(tried.length, mutants.length);
      report(`${tried.length}/${mutants.length} ${verdict.padEnd(8)} ${mutant.id} (${left} left)`);
    }
    return [...problems.values()].filter((problem) => problem !== undefined);
  });

/** @param ofFile suites of one file: their tests are run together. */
async function problemOf(
  ofFile: readonly Suite[],
  suites: ReturnType<typeof createSuites>,
): Promise<string | undefined> {
  const { status, tests, failed } = await suites.run(selectionOf(ofFile));
  if (status === 'passed' && tests > 0) return undefined;
  return `${ofFile[0]!.file} ${status === 'passed' ? 'has no such test' : `fails without a mutant: ${failed ?? status}`}`;
}

/** @param suites of one file; all of it runs when one of them is the whole file. */
function selectionOf(suites: readonly Suite[]): Selection {
  const [{ tier, file }] = suites as [Suite];
  const titles = suites.flatMap(({ test }) => test ?? []);
  return {
    ...{ tiers: [tier], files: [file] },
    ...(titles.length < suites.length ? {} : { titles: [...new Set(titles)] }),
  };
}

/** @returns how long the rest will take, by what was done. */
function createClock(): (done: number, of: number) => string {
  const beganMs = performance.now();
  return (done, of) => {
    const seconds = Math.round(((performance.now() - beganMs) / done / 1_000) * (of - done));
    return seconds < 90 ? `${seconds} s` : `${Math.round(seconds / 60)} min`;
  };
}

await runProgram(main);
