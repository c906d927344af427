/** Recorded histories replayed with today's workflow code: a change that open executions cannot follow fails here. */
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DeterminismViolationError } from '@temporalio/workflow';
import type { WorkflowBundle } from '@temporalio/worker';
import { DefaultLogger, Runtime, Worker } from '@temporalio/worker';
import { bundleWorkflowCode } from 'temporal-bundler/lib/workflow/bundler.js';
import { workflowBundle } from '../../workers/workflow-bundle.ts';

const ROOT = path.join(import.meta.dirname, '../..');
const FOLDER = import.meta.dirname;
const NAMES = readdirSync(FOLDER)
  .filter((file) => file.endsWith('.json'))
  .map((file) => path.basename(file, '.json'));

beforeAll(() => Runtime.install({ logger: new DefaultLogger('WARN') }));

const replay = (name: string, bundle: WorkflowBundle | { codePath: string }) =>
  Worker.runReplayHistory(
    { workflowBundle: bundle, replayName: name },
    JSON.parse(readFileSync(path.join(FOLDER, `${name}.json`), 'utf8')),
  );

test.each(NAMES)('I40 the recorded history %s replays', async (name) => {
  await expect(replay(name, await workflowBundle())).resolves.toBeUndefined();
});

describe('a changed workflow', () => {
  /** Where the change goes. */
  const BEFORE =
    'export async function notification(intent: NotificationInput): Promise<NotificationOutcome> {\n';
  const homes: string[] = [];
  afterAll(() => homes.forEach((home) => rmSync(home, { recursive: true })));

  /** The bundle of workflows into whose notification these lines were put. */
  async function bundleWith(lines: string): Promise<WorkflowBundle> {
    const home = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-changed-'));
    homes.push(home);
    symlinkSync(path.join(ROOT, 'node_modules'), path.join(home, 'node_modules'));
    const folder = path.join(home, 'workflows');
    cpSync(path.join(ROOT, 'workflows'), folder, { recursive: true });
    const file = path.join(folder, 'intent', 'workflow.ts');
    const source = readFileSync(file, 'utf8');
    expect(source.split(BEFORE)).toHaveLength(2);
    const imports = `import { patched as isPatched, sleep as pause } from '@temporalio/workflow';\n`;
    writeFileSync(file, imports + source.replace(BEFORE, `${BEFORE}${lines}\n`));
    return bundleWorkflowCode({
      workflowsPath: path.join(folder, 'index.ts'),
      workflowInterceptorModules: [path.join(folder, 'trace-context.ts')],
      logger: new DefaultLogger('WARN'),
    });
  }

  test('I40 without a patch does not replay what the old one did', async () => {
    const bundle = await bundleWith('  await pause(1_000);');
    await expect(replay('notification-published', bundle)).rejects.toThrow(DeterminismViolationError);
  });

  test('I40 behind a patch replays it', async () => {
    const bundle = await bundleWith(`  if (isPatched('wait-before-acceptance')) await pause(1_000);`);
    await expect(replay('notification-published', bundle)).resolves.toBeUndefined();
  });
});

test('every workflow of the bundle has a recorded history', () => {
  const recorded = NAMES.map((name) => {
    const { events } = JSON.parse(readFileSync(path.join(FOLDER, `${name}.json`), 'utf8')) as {
      events: { workflowExecutionStartedEventAttributes?: { workflowType: { name: string } } }[];
    };
    return events[0]?.workflowExecutionStartedEventAttributes?.workflowType.name;
  });
  const index = readFileSync(path.join(ROOT, 'workflows', 'index.ts'), 'utf8');
  const exported = [...index.matchAll(/export \{([^}]*)\}/g)].flatMap(([, names]) =>
    names!.split(',').map((n) => n.trim()),
  );
  expect(new Set(recorded)).toEqual(new Set(exported));
});
