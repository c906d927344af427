/** Tests run against real servers that globalSetup starts once; see test/harness.ts. */
/** @type {import('jest').Config} */
export default {
  testEnvironment: 'node',
  // It names no entry for require.
  moduleNameMapper: { '^canonicalize$': '<rootDir>/node_modules/canonicalize/lib/canonicalize.js' },
  testMatch: ['<rootDir>/test/**/*.test.ts'],
  globalSetup: '<rootDir>/test/global-setup.ts',
  globalTeardown: '<rootDir>/test/global-teardown.ts',
  moduleFileExtensions: ['ts', 'js', 'mjs', 'json', 'node'],
  transform: {
    '\\.(ts|js|mjs)$': [
      '@swc/jest',
      {
        jsc: { target: 'es2024', parser: { syntax: 'typescript' } },
        module: { type: 'commonjs' },
        sourceMaps: 'inline',
      },
    ],
  },
  // Packages that ship or import ES modules; Jest's own loader wants CommonJS.
  transformIgnorePatterns: [
    '/node_modules/(?!(canonicalize|p-limit|yocto-queue|node-pg-migrate|commander|cockatiel|@opentelemetry/otlp-exporter-base)/)',
  ],
  // Each test file talks to servers that the machine shares with the others.
  testTimeout: 60_000,
  maxWorkers: 2,
  // The Temporal SDK's native threads take a moment to wind down.
  workerGracefulExitTimeout: 10_000,
};
