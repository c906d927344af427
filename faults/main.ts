/** `npm run test:faults`: what is promised, under every fault that a test can bring about. */
import { writeFileSync } from 'node:fs';
import { report, runProgram } from '../dev/program.ts';
import { flood } from './flood.ts';
import { CHARGES } from './ledger/verdict.ts';
import type { Options } from './options.ts';
import { HELP, commandOf, parseOptions } from './options.ts';
import type { Result } from './report.ts';
import { restartRedis } from './redis-restart.ts';
import { markdownOf } from './report.ts';
import { run } from './run.ts';

/** Problems of one kind that are shown; the JSON file has all. */
const MOST_SHOWN = 20;

async function main(): Promise<boolean> {
  const options = parseOptions(process.argv.slice(2));
  if (options.help) {
    process.stdout.write(HELP);
    return true;
  }
  // Ending through `exit` takes the servers and the service along, which a signal by itself would leave behind.
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => process.exit(130));
  if (options.flood) return flood(options, report);
  if (options.restartRedis) return restartRedis(options, report);
  report(`FAULT_SEED=${options.seed}`);
  try {
    const result = await run(options, report);
    write(options, result);
    show(result);
    if (!result.isGood) report(`Repeat it with: ${commandOf(options)}`);
    return result.isGood;
  } catch (error) {
    report(`Repeat it with: ${commandOf(options)}`);
    throw error;
  }
}

function write({ jsonFile }: Options, result: Result): void {
  if (jsonFile !== undefined) writeFileSync(jsonFile, `${JSON.stringify(result, null, 2)}\n`);
}

function show(result: Result): void {
  process.stdout.write(`\n${markdownOf(result)}\n`);
  const problems: [string, readonly string[]][] = [
    ...Object.entries(result.works).flatMap(([work, verdict]) =>
      CHARGES.map((charge): [string, readonly string[]] => [`${work}: ${charge}`, verdict[charge]]),
    ),
    ['where it must not be', result.leaked],
    ['processes that ended by themselves', result.crashes],
  ];
  for (const [what, list] of problems) {
    if (list.length === 0) continue;
    report(`${what} (${list.length}):`);
    for (const line of list.slice(0, MOST_SHOWN)) report(`  ${line}`);
  }
}

await runProgram(main);
// What a library left open must not keep a finished run alive.
process.exit();
