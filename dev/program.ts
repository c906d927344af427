/** What the programs of development and of the tests have in common. */
import { explain } from '../api/errors.ts';

/** Tells a person: standard output is for results. */
export function report(line: string): void {
  process.stderr.write(`${line}\n`);
}

/** Runs a program. Its exit code is 0 when `main` says that all is well, and otherwise 1; an error is explained. */
export async function runProgram(main: () => Promise<boolean>): Promise<void> {
  try {
    process.exitCode = (await main()) ? 0 : 1;
  } catch (error) {
    report(explain(error));
    process.exitCode = 1;
  }
}
