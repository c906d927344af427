/** Entry of the demo: `npm run demo`. */
import { enableCompileCache } from 'node:module';

// As the service does it: half a second from the second run on.
enableCompileCache();
await import('./run.ts');
