import path from 'node:path';
import { clockOfRun } from './run-clock.ts';

/**
 * Of the test's own environment what a program needs to run, and no more: no variable may get in by accident. Programs
 * of one run have the same sources, which Node compiles once for all of them.
 */
export const PROGRAM_ENV = {
  PATH: process.env['PATH'] ?? '',
  ...clockOfRun(),
  NODE_COMPILE_CACHE: path.join(import.meta.dirname, '../node_modules/.cache/node'),
};
