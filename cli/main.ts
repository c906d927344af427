/** Entry of the operator's command line. */
import { enableCompileCache } from 'node:module';

// Most of the time of a command is compiling the same sources again. The compiled sources are kept in the folder for
// temporary files and used from the next run on; where nothing can be written, every run compiles.
enableCompileCache();
const { run } = await import('./program.ts');
// Without waiting until nothing is left to do: a command that was interrupted leaves calls to servers behind.
process.exit(await run(process));
