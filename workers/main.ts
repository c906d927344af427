#!/usr/bin/env node
/** Entry of the service: `npm start`. */
import { enableCompileCache } from 'node:module';

// A start compiles several thousand files, mostly the SDKs': their outcome is kept in the folder for temporary files,
// and used from the next start on. Where nothing can be written, every start compiles.
enableCompileCache();
await import('./run.ts');
