/**
 * The borders of the house (CONTRIBUTING.md): which room may import which. `npm run lint` checks them, imports of types
 * included.
 */
import { readdirSync } from 'node:fs';

/** Each kind of work has a folder of its name. */
const KINDS = readdirSync(new URL('workflows', import.meta.url), { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map(({ name }) => name);

/** Files of a kind of work lie in a sub-folder of its name, or are named after it. */
const filesOf = (kinds) => `(^|/)(${kinds.join('|')})(/|[.]ts$)`;
const NOT_OURS = 'node_modules/|^test/';

/** What a folder may import of the other folders. */
const border = (folder, allowed, comment) => ({
  name: `border-of-${folder}`,
  comment,
  severity: 'error',
  from: { path: `^${folder}/` },
  to: {
    path: '^[^/]+/',
    dependencyTypesNot: ['core'],
    // Examples have the client as others have it, by its name.
    pathNot: [`^(${[folder, ...allowed].join('|')})/`, 'node_modules/', '^galaxy-notify/'],
  },
});

/** Files of `workflows/` without workflow code: other processes may load them. */
const PURE_WORKFLOW_FILES = 'contract[.]ts$|/(details|failures|policies|rules|search-attributes)[.]ts$';

/** @type {import('dependency-cruiser').IConfiguration} */
export default {
  forbidden: [
    {
      name: 'no-circle',
      comment: 'Files that import each other cannot be read one after the other. Types count.',
      severity: 'error',
      from: {},
      to: { circular: true },
    },
    ...KINDS.map((kind) => ({
      name: `no-import-of-other-kinds-by-${kind}`,
      comment: 'A kind of work stands alone: what two kinds need lies directly in the folder.',
      severity: 'error',
      from: { path: filesOf([kind]), pathNot: NOT_OURS },
      to: { path: filesOf(KINDS.filter((other) => other !== kind)), pathNot: NOT_OURS },
    })),
    {
      name: 'nobody-imports-cli',
      comment:
        'The command line is a program. What others need of it belongs into client/. The page of commands is written from their tree.',
      severity: 'error',
      from: { pathNot: '^((cli|test)/|dev/reference[.]ts$)' },
      to: { path: '^cli/' },
    },
    border('api', [], 'Contracts depend on nothing.'),
    {
      name: 'border-of-workflows',
      comment:
        'Workflows run in the sandbox: their own folder, types of activities, and the package made for it.',
      severity: 'error',
      from: { path: '^workflows/' },
      to: { pathNot: ['^(workflows|activities)/', 'node_modules/@temporalio/workflow/'] },
    },
    {
      name: 'workflows-import-types-of-activities',
      comment: 'Workflows call activities through proxies.',
      severity: 'error',
      from: { path: '^workflows/' },
      to: { path: '^activities/', dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'workflow-code-stays-in-the-bundle',
      comment: 'Other processes load contracts, failures, policies and rules only.',
      severity: 'error',
      from: { pathNot: '^(workflows|test)/' },
      to: { path: '^workflows/', pathNot: PURE_WORKFLOW_FILES, dependencyTypesNot: ['type-only'] },
    },
    border('activities', ['api', 'workflows'], 'Activities get what they need as resources.'),
    border('config', ['api', 'workflows'], 'The configuration knows contracts only.'),
    border('migrations', ['api', 'workflows'], 'What servers must hold follows from contracts.'),
    border('client', ['api', 'workflows'], 'The client is a library for other programs: contracts only.'),
    border(
      'cli',
      // The ways to routers and other servers: `doctor` tries them.
      [
        'api',
        'workflows',
        'client',
        'config',
        'migrations',
        'activities/subscription/router',
        'activities/intent(?=/user-service[.]ts)',
        'activities/http',
      ],
      'The command line is an operator.',
    ),
    {
      name: 'border-of-workers',
      comment: 'The image has no dev/: a worker loads it on demand.',
      severity: 'error',
      from: { path: '^workers/' },
      to: {
        path: '^(client|cli|dev|bench|faults|test)/',
        dependencyTypesNot: ['type-only', 'dynamic-import'],
      },
    },
    border('deploy', ['config'], 'Files for other programs.'),
    {
      name: 'the-ledger-is-a-stranger',
      comment: 'What judges the product knows documents only: a mistake that both share would not be seen.',
      severity: 'error',
      from: { path: '^faults/ledger/' },
      to: { pathNot: '^faults/ledger/', dependencyTypesNot: ['core'] },
    },
  ],
  options: {
    doNotFollow: { path: 'node_modules/' },
    exclude: { path: '^(coverage|\\.data|\\.cache|docs|templates)/' },
    // Imports of types, too.
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    enhancedResolveOptions: { exportsFields: ['exports'], conditionNames: ['import', 'node', 'default'] },
  },
};
