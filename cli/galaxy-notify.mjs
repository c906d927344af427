#!/usr/bin/env node
/**
 * What `npx --no-install galaxy-notify` runs in a checkout. Plain JavaScript, so that a Node that cannot run the sources says what to
 * do instead of failing at the first file.
 */
import { existsSync } from 'node:fs';
import process from 'node:process';

const isInstalled = existsSync(new URL('../node_modules/commander', import.meta.url));
if (isInstalled && process.features.typescript) {
  await import('./main.ts');
} else {
  const reason = isInstalled
    ? `Node 22.18 or later is needed, and this is ${process.version}`
    : 'the dependencies are not installed';
  console.error(`error: ${reason}; npm run cli -- <command> installs and uses both`);
  process.exitCode = 1;
}
