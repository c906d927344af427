/** `npm run test:mutants`: whether the tests notice small wrong changes to the product. */
import { writeFileSync } from 'node:fs';
import { report, runProgram } from '../dev/program.ts';
import { MUTANTS } from './list.ts';
import type { Mutant, Suite } from './mutant.ts';
import { nameOf } from './mutant.ts';
import type { Options } from './options.ts';
import { HELP, parseOptions } from './options.ts';
import type { Tried } from './report.ts';
import { WANTED, isKilled, markdownOf, shareOf } from './report.ts';
import { createScratch } from './scratch.ts';
import { createSuites } from './suites.ts';

async function main(): Promise<boolean> {
  const options = parseOptions(process.argv.slice(2));
  if (options.help) {
    process.stdout.write(HELP);
    return true;
  }
  const mutants = chosen(options);
  if (options.list) {
    for (const { id, wrong, what } of mutants) process.stdout.write(`${id}  ${wrong}: ${what}\n`);
    return true;
  }
  let tried: readonly Tried[] = [];
  const useless = await tryAll(mutants, (soFar) => {
    tried = soFar;
    if (options.jsonFile !== undefined)
      writeFileSync(options.jsonFile, `${JSON.stringify(tried, null, 2)}\n`);
  });
  process.stdout.write(`\n${markdownOf(tried)}`);
  for (const problem of useless) report(problem);
  return useless.length === 0 && shareOf(tried) >= WANTED;
}

/** Sorted by suite. Suites without servers come first: they give a result soon. */
function chosen({ only }: Options): Mutant[] {
  const wanted = MUTANTS.filter(({ id }) => only.length === 0 || only.some((part) => id.startsWith(part)));
  const rank = ({ suite }: Mutant) => `${suite.tier === 'service' ? 1 : 0} ${nameOf(suite)}`;
  return wanted.sort((one, other) => (rank(one) < rank(other) ? -1 : 1));
}

/** @returns suites that fail, or have no test, before anything is changed: they prove nothing, and their mutants are left out. */
async function tryAll(
  mutants: readonly Mutant[],
  onTried: (tried: readonly Tried[]) => void,
): Promise<string[]> {
  const scratch = createScratch();
  const suites = createSuites(scratch.dir);
  // Ending through `exit` takes the servers along, which a signal by itself would leave behind.
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      scratch.remove();
      process.exit(130);
    });
  }
  const tried: Tried[] = [];
  const useless: string[] = [];
  const clock = createClock();
  try {
    for (const ofFile of Map.groupBy(mutants, ({ suite }) => suite.file).values()) {
      const problem = await problemOf(ofFile.map(({ suite }) => suite));
      if (problem !== undefined) {
        report(problem);
        useless.push(problem);
        continue;
      }
      for (const mutant of ofFile) {
        const { suite } = mutant;
        const undo = scratch.apply(mutant);
        const result = await suites.run(suite, titlesOf([suite]), mutant.file);
        undo();
        tried.push({ mutant, result });
        onTried(tried);
        const verdict = isKilled({ mutant, result }) ? 'dies' : 'SURVIVES';
        const left = clock(tried.length, mutants.length);
        report(`${tried.length}/${mutants.length} ${verdict.padEnd(8)} ${mutant.id} (${left} left)`);
      }
    }
  } finally {
    await suites.stop();
    scratch.remove();
  }
  return useless;

  /** Of one file: its tests are run together. */
  async function problemOf(ofFile: readonly Suite[]): Promise<string | undefined> {
    const [{ file, tier }] = ofFile as [Suite];
    const { status, tests, failed } = await suites.run({ file, tier }, titlesOf(ofFile));
    if (status === 'passed' && tests > 0) return undefined;
    return `${file} ${status === 'passed' ? 'has no such test' : `fails without a mutant: ${failed ?? status}`}`;
  }
}

/** @returns undefined when one of them is a whole file. */
function titlesOf(suites: readonly Suite[]): string[] | undefined {
  const titles = suites.flatMap(({ test }) => test ?? []);
  return titles.length < suites.length ? undefined : [...new Set(titles)];
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
