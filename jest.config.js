/**
 * The tiers, told by the names of the files (CONTRIBUTING.md says which one a new test belongs to): `unit` needs no server,
 * `workflow` runs workflows in virtual time, `service` runs against real servers, `hard` has what takes long, and `runbook`
 * carries the runbook out. `tools` are tests of our own tools and stand-ins, which matter when those change. The other ways
 * of working are projects as well: the files whose behavior depends on a way, with its variables. The servers start once
 * for the whole run, see test/global-setup.ts.
 */

/** Each without the folder `test` and the ending `.test.ts`. */
const TOOLS = [
  'platform/{audit.service,install.unit,ledger.unit,tcp-proxy.unit}',
  'platform/{embedded-servers,image,packages}.hard',
  'subscription/binary/{live-routers,transcripts}.unit',
];

/** @param {string[]} names */
const files = (...names) => names.map((name) => `<rootDir>/test/${name}.test.ts`);

/** @param {string} tier */
const filesOf = (tier) => [...files(`**/*.${tier}`), ...TOOLS.map((name) => `!**/test/${name}.test.ts`)];

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

/**
 * Files that run once more with other variables.
 *
 * @param {Record<string, string>} variables
 * @param {string} [testNamePattern] the tests of these files that depend on them; default: all.
 */
const inWay = (variables, testNamePattern) => ({
  ...withServers,
  globals: { way: { variables, testNamePattern } },
});

/** @type {import('jest').Config} */
export default {
  projects: [
    { ...everywhere, displayName: 'unit', testMatch: filesOf('unit') },
    { ...everywhere, displayName: 'workflow', testMatch: filesOf('workflow') },
    { ...withServers, displayName: 'service', testMatch: filesOf('service') },
    { ...withServers, displayName: 'hard', testMatch: filesOf('hard') },
    { ...withServers, displayName: 'tools', testMatch: files(...TOOLS) },
    {
      ...inWay({ NOTIFICATION_ROUTE_DISPATCH: 'on_failure' }),
      displayName: 'on-failure',
      testMatch: files(
        'intent/{collapse,e2e,steering}.service',
        'intent/faults.hard',
        'platform/{telemetry.service,crash-points.hard}',
      ),
    },
    {
      ...inWay({ NOTIFICATION_ROUTE_DISPATCH: 'direct' }, 'seconds without|I36|I93'),
      displayName: 'direct',
      testMatch: files('intent/collapse.service', 'intent/faults.hard'),
    },
    {
      ...inWay({ TEST_POSTGRES: 'pooled' }),
      displayName: 'pooled',
      testMatch: files('*/e2e.service', 'intent/operator.service', 'subscription/engine.service'),
      globalSetup: '<rootDir>/test/pooled-setup.ts',
    },
    { ...withServers, displayName: 'runbook', testMatch: files('**/*.runbook') },
  ],
  testSequencer: '<rootDir>/test/tier-sequencer.js',
  // Each test file talks to servers that the machine shares with the others; longer than `eventually` waits.
  testTimeout: 150_000,
  // More than cores: much of a test's time is waiting.
  maxWorkers: 3,
  // The Temporal SDK's native threads take a moment to wind down.
  workerGracefulExitTimeout: 10_000,
};
