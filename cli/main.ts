/** Entry of the operator's command line. */
import { enableCompileCache } from 'node:module';

// Most of what a command takes is compiling the same sources again: their outcome is kept in the folder for temporary
// files, and used from the next run on. Where nothing can be written, everything goes on without.
enableCompileCache();
const { main } = await import('./run.ts');
await main();
