/**
 * Four tiers, told by the names of the files: `unit` is pure and takes seconds, `service` runs against real servers,
 * `hard` has what takes long: outages, crash points, chaos, packaging, and `runbook` carries the runbook out. The servers are
 * started once for the whole run, see test/harness.ts.
 */

/** @type {import('jest').Config} */
const everywhere = {
  testRunner: '<rootDir>/test/native-runner.js',
  transform: {},
};

const withServers = {
  ...everywhere,
  globalSetup: '<rootDir>/test/global-setup.ts',
  globalTeardown: '<rootDir>/test/global-teardown.ts',
};

/** @type {import('jest').Config} */
export default {
  projects: [
    { ...everywhere, displayName: 'unit', testMatch: ['<rootDir>/test/**/*.unit.test.ts'] },
    { ...withServers, displayName: 'service', testMatch: ['<rootDir>/test/**/*.service.test.ts'] },
    { ...withServers, displayName: 'hard', testMatch: ['<rootDir>/test/**/*.hard.test.ts'] },
    {
      ...withServers,
      displayName: 'runbook',
      testMatch: ['<rootDir>/test/**/*.runbook.test.ts'],
      globalSetup: '<rootDir>/test/runbook/setup.ts',
      globalTeardown: '<rootDir>/test/runbook/teardown.ts',
    },
  ],
  testSequencer: '<rootDir>/test/tier-sequencer.js',
  reporters: ['default', '<rootDir>/test/tier-reporter.ts'],
  // Each test file talks to servers that the machine shares with the others; longer than `eventually` waits.
  testTimeout: 150_000,
  // More than cores: much of a test's time is waiting.
  maxWorkers: 3,
  // The Temporal SDK's native threads take a moment to wind down.
  workerGracefulExitTimeout: 10_000,
};
