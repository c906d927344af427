import js from '@eslint/js';
import prettier from 'eslint-config-prettier';
import tseslint from 'typescript-eslint';

const noEnvironment = {
  'no-restricted-properties': [
    'error',
    { object: 'process', property: 'env', message: 'Only config/load.ts reads the environment.' },
  ],
};
const CONNECTIONS = [
  {
    selector:
      "NewExpression[callee.name='Redis'], NewExpression[callee.name='Pool'], NewExpression[callee.property.name='Pool']",
    message: 'Connections of the service are opened in workers/{redis,connections}.ts only.',
  },
  {
    selector: "CallExpression[callee.object.name=/^(Native)?Connection$/][callee.property.name='connect']",
    message: 'Connections of the service are opened in workers/{redis,connections}.ts only.',
  },
];
/** They load bytes before anybody knows how many. */
const UNBOUNDED_READS = [
  {
    selector:
      'CallExpression[callee.property.name=/^(xread|xreadgroup|xrange|xrevrange|xautoclaim|xclaim)(Buffer)?$/]',
    message:
      'Entries may have any size: read them through activities/stream-read.ts, ids through api/stream-ids.ts.',
  },
  {
    selector:
      "CallExpression[callee.property.name=/^xinfo(Buffer)?$/]:not([arguments.0.value='GROUPS'], [arguments.0.value='CONSUMERS'])",
    message:
      'XINFO STREAM gives whole entries: leave them out in a script, as activities/outbound-state.ts does.',
  },
  {
    selector:
      'CallExpression[callee.property.name=/^(lrange|smembers|hgetall|hvals|zrange|keys|call)(Buffer)?$/][callee.object.name=/redis|connection/i]',
    message: 'Read what is bounded: a page, a cursor, one field. Commands by name hide what they read.',
  },
  {
    selector:
      'CallExpression[arguments.length=0][callee.property.name=/^(text|json|arrayBuffer|blob|bytes)$/][callee.object.name=/response|answer|reply/i]',
    message: 'The other side decides how long its answer is: read it with a limit.',
  },
];
/** An attempt without recorded heartbeats is taken for a late one. */
const UNNOTED_HEARTBEATS = {
  selector: "CallExpression[callee.property.name='heartbeat']",
  message: 'Heartbeat through activities/attempt.ts, which notes it.',
};
/** They change with any release of the SDK. */
const SDK_INTERNALS = {
  'no-restricted-imports': [
    'error',
    {
      patterns: [
        { regex: '^@temporalio/[^/]+/lib/', message: "The SDK's public API has all that is needed." },
      ],
    },
  ],
};
const restricted = (...rules) => ({ 'no-restricted-syntax': ['error', ...rules.flat()] });

export default tseslint.config(
  { ignores: ['node_modules/', '.data/', '.cache/', 'coverage/', 'api/intent/generated/'] },
  js.configs.recommended,
  {
    files: ['**/*.ts'],
    extends: [tseslint.configs.recommendedTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': 'error',
      // A deliberate void marks a promise that is not awaited; the rest must be awaited.
      '@typescript-eslint/no-floating-promises': ['error', { ignoreVoid: true }],
      // A leading underscore says that a value is taken out to be left out.
      '@typescript-eslint/no-unused-vars': ['error', { varsIgnorePattern: '^_', argsIgnorePattern: '^_' }],
      // Objects of functions, not classes: there is no `this` to lose.
      '@typescript-eslint/unbound-method': 'off',
      // Interfaces that promise a promise may be met by functions that need no await.
      '@typescript-eslint/require-await': 'off',
      // Restated with types by the rules above and by the compiler.
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true, allowNever: true }],
      ...noEnvironment,
      ...SDK_INTERNALS,
      ...restricted(CONNECTIONS, UNBOUNDED_READS, UNNOTED_HEARTBEATS),
    },
  },
  {
    files: ['**/*.js', '**/*.mjs'],
    languageOptions: {
      globals: {
        process: 'readonly',
        console: 'readonly',
        Buffer: 'readonly',
        URL: 'readonly',
        setTimeout: 'readonly',
        clearTimeout: 'readonly',
        setInterval: 'readonly',
        clearInterval: 'readonly',
        fetch: 'readonly',
        AbortController: 'readonly',
        AbortSignal: 'readonly',
      },
    },
  },
  {
    // Which folder may import which is in .dependency-cruiser.js.
    files: ['workflows/**'],
    rules: {
      'no-restricted-globals': ['error', 'process', 'Buffer', 'setImmediate', 'fetch', 'require'],
      // Modules are shared by all executions of a thread (workers/workflow-bundle.ts): state must live in functions.
      'no-restricted-syntax': [
        'error',
        {
          selector:
            ':matches(Program, Program > ExportNamedDeclaration) > VariableDeclaration[kind!="const"]',
          message: 'Executions share modules: keep state inside the workflow function.',
        },
        {
          selector:
            ':matches(Program, Program > ExportNamedDeclaration) > VariableDeclaration > VariableDeclarator > NewExpression',
          message: 'Executions share modules: a collection here would be state that they share.',
        },
      ],
    },
  },
  { files: ['test/sdk-internals.ts'], rules: { 'no-restricted-imports': 'off' } },
  { files: ['config/load.ts'], rules: { 'no-restricted-properties': 'off' } },
  {
    files: ['cli/**/*.ts'],
    ignores: ['cli/main.ts'],
    rules: {
      'no-restricted-globals': [
        'error',
        { name: 'process', message: 'Several runs of the command line share it: use shell().' },
      ],
    },
  },
  {
    // Clients open connections for their own users.
    files: ['workers/{redis,connections}.ts', 'cli/**', 'client/**'],
    rules: restricted(UNBOUNDED_READS),
  },
  { files: ['activities/stream-read.ts'], rules: restricted(CONNECTIONS) },
  { files: ['activities/attempt.ts'], rules: restricted(CONNECTIONS, UNBOUNDED_READS) },
  // The relay has written what it reads, in entries of bounded size.
  { files: ['client/outcomes.ts'], rules: { 'no-restricted-syntax': 'off' } },
  {
    // The embedded stack, benchmarks and tests are for themselves.
    files: ['dev/**', 'bench/**', 'faults/**', 'mutants/**', 'test/**'],
    rules: { 'no-restricted-syntax': 'off' },
  },
  {
    files: ['test/**'],
    rules: {
      // Jest passes what globalSetup found out to the test processes through the environment.
      'no-restricted-properties': 'off',
      // Matchers such as expect.objectContaining are typed any.
      '@typescript-eslint/no-unsafe-assignment': 'off',
      ...restricted({
        selector:
          "Property[key.name='kind'][value.value='delay'], Property[key.name='kind'][value.expression.value='delay']",
        message:
          'A delay depends on the speed of the machine: hold the answer (dev/stand-ins/failure-scripts.ts).',
      }),
    },
  },
  {
    // The proxy has no answers to hold.
    files: ['test/platform/tcp-proxy.unit.test.ts'],
    rules: { 'no-restricted-syntax': 'off' },
  },
  prettier,
);
