/** The suites as npm test runs them, on servers that run already: TEST_STACK names them. */
import path from 'node:path';
import config from '../jest.config.js';

const rootDir = path.dirname(import.meta.dirname);
const { projects, testTimeout, testSequencer } = config;

/** @type {import('jest').Config} */
export default {
  rootDir,
  testTimeout,
  testSequencer,
  projects: projects.map(({ globalSetup: _setup, globalTeardown: _teardown, ...project }) => ({
    ...project,
    rootDir,
  })),
};
