/** The suites as npm test runs them, in one process, and on servers that run already. */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import config from '../jest.config.js';

const rootDir = path.dirname(import.meta.dirname);
const { projects, testSequencer } = config;

/** What `globalSetup` would tell the tests through the environment. */
const environment = path.join(rootDir, '.mutants-environment.json');
if (existsSync(environment)) Object.assign(process.env, JSON.parse(readFileSync(environment, 'utf8')));

/** @type {import('jest').Config} */
export default {
  rootDir,
  // Shorter than usual: most tests that take so long hang.
  testTimeout: 40_000,
  testSequencer,
  reporters: ['<rootDir>/mutants/reporter.js'],
  projects: projects.map((project) => ({
    ...project,
    rootDir,
    globalSetup: undefined,
    globalTeardown: undefined,
  })),
};
