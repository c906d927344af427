/** `npm run test:mutants`: whether the tests notice small wrong changes to the product. */
import { writeFileSync } from 'node:fs';
import { explain } from '../api/errors.ts';
import { MUTANTS } from './list.ts';
import type { Mutant, Suite } from './mutant.ts';
import { nameOf } from './mutant.ts';
import type { Options } from './options.ts';
import { HELP, parseOptions } from './options.ts';
import type { Tried } from './report.ts';
import { WANTED, isKilled, markdownOf, shareOf } from './report.ts';
import { createScratch } from './scratch.ts';
import { createSuites } from './suites.ts';

const report = (line: string): void => void process.stderr.write(`${line}\n`);

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
  const beganMs = performance.now();
  const tried = await tryAll(mutants);
  const page = markdownOf(tried, (performance.now() - beganMs) / 1_000);
  if (options.jsonFile !== undefined) writeFileSync(options.jsonFile, `${JSON.stringify(tried, null, 2)}\n`);
  if (options.reportFile !== undefined) writeFileSync(options.reportFile, page);
  process.stdout.write(`\n${page}`);
  return shareOf(tried) >= WANTED;
}

/** Those of one suite after each other, units first: whoever waits soon sees something. */
function chosen({ only }: Options): Mutant[] {
  const wanted = MUTANTS.filter(({ id }) => only.length === 0 || only.some((part) => id.startsWith(part)));
  const rank = ({ suite }: Mutant) => `${suite.tier === 'unit' ? 0 : 1} ${nameOf(suite)}`;
  return wanted.sort((one, other) => (rank(one) < rank(other) ? -1 : 1));
}

/** @throws Error when a suite fails, or has no test, before anything is changed: then it would prove nothing. */
async function tryAll(mutants: readonly Mutant[]): Promise<Tried[]> {
  const scratch = createScratch();
  const suites = createSuites(scratch.dir, report);
  // Ending through `exit` takes the servers along, which a signal by itself would leave behind.
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      scratch.remove();
      process.exit(130);
    });
  }
  const seen = new Set<string>();
  const tried: Tried[] = [];
  const clock = createClock();
  try {
    for (const mutant of mutants) {
      if (!seen.has(nameOf(mutant.suite))) await expectGreen(mutant.suite);
      seen.add(nameOf(mutant.suite));
      const undo = scratch.apply(mutant);
      const result = await suites.run(mutant.suite);
      undo();
      tried.push({ mutant, result });
      const verdict = isKilled({ mutant, result }) ? 'dies' : 'SURVIVES';
      const left = clock(tried.length, mutants.length);
      report(`${tried.length}/${mutants.length} ${verdict.padEnd(8)} ${mutant.id} (${left} left)`);
    }
    return tried;
  } finally {
    await suites.stop();
    scratch.remove();
  }

  async function expectGreen(suite: Suite): Promise<void> {
    const { status, tests, failed } = await suites.run(suite);
    if (status === 'passed' && tests > 0) return;
    throw new Error(
      tests === 0 && status === 'passed'
        ? `${nameOf(suite)} has no such test`
        : `${nameOf(suite)} fails without a mutant: ${failed ?? status}`,
    );
  }
}

/** @returns how long the rest will take, by what was done. */
function createClock(): (done: number, of: number) => string {
  const beganMs = performance.now();
  return (done, of) => {
    const seconds = Math.round(((performance.now() - beganMs) / done / 1_000) * (of - done));
    return seconds < 90 ? `${seconds} s` : `${Math.round(seconds / 60)} min`;
  };
}

try {
  process.exitCode = (await main()) ? 0 : 1;
} catch (error) {
  report(explain(error));
  process.exitCode = 1;
}
