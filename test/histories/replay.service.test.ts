/** Recorded histories replayed with today's workflow code: a change that open executions cannot follow fails here. */
import { readFileSync, readdirSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { DeterminismViolationError } from '@temporalio/workflow';
import type { WorkflowBundle } from '@temporalio/worker';
import { DefaultLogger, Runtime, Worker } from '@temporalio/worker';
import { workflowBundle } from '../../workers/workflow-bundle.ts';

const ROOT = path.join(import.meta.dirname, '../..');
const FOLDER = import.meta.dirname;
const NAMES = readdirSync(FOLDER)
  .filter((file) => file.endsWith('.json'))
  .map((file) => path.basename(file, '.json'));

const historyOf = (name: string) =>
  JSON.parse(readFileSync(path.join(FOLDER, `${name}.json`), 'utf8')) as { events: RecordedEvent[] };

interface RecordedEvent {
  workflowExecutionStartedEventAttributes?: { workflowType: { name: string } };
}

/** What each recorded history failed with; undefined when it replayed. */
const failures = new Map<string, Error | undefined>();

beforeAll(async () => {
  Runtime.install({ logger: new DefaultLogger('WARN') });
  const replays = Worker.runReplayHistories(
    { workflowBundle: await workflowBundle() },
    NAMES.map((name) => ({ workflowId: name, history: historyOf(name) })),
  );
  for await (const { workflowId, error } of replays) failures.set(workflowId, error);
});

test.each(NAMES)('I40 the recorded history %s replays', (name) => {
  expect(failures.has(name)).toBe(true);
  expect(failures.get(name)).toBeUndefined();
});

describe('a changed workflow', () => {
  const BEFORE = 'async function notification(intent) {\n';

  /** The bundle with a statement at the beginning of a notification. `$` stands for the module of the SDK. */
  async function bundleWith(statement: string): Promise<WorkflowBundle> {
    const code = await readFile((await workflowBundle()).codePath, 'utf8');
    const parts = code.split(BEFORE);
    expect(parts).toHaveLength(2);
    const [front, back] = parts as [string, string];
    const sdk = /.*\b(_temporalio_workflow__WEBPACK_IMPORTED_MODULE_\d+__)\./s.exec(front)![1]!;
    return { code: `${front}${BEFORE}${statement.replaceAll('$', sdk)}\n${back}` };
  }

  const replayOn = (bundle: WorkflowBundle) =>
    Worker.runReplayHistory({ workflowBundle: bundle }, historyOf('notification-published'));

  test('I40 without a patch does not replay what the old one did', async () => {
    const bundle = await bundleWith('await $.sleep(1_000);');
    await expect(replayOn(bundle)).rejects.toThrow(DeterminismViolationError);
  });

  test('I40 behind a patch replays it', async () => {
    const bundle = await bundleWith(`if ($.patched('wait-before-acceptance')) await $.sleep(1_000);`);
    await expect(replayOn(bundle)).resolves.toBeUndefined();
  });
});

test('every workflow of the bundle has a recorded history', () => {
  const recorded = NAMES.map((name) => {
    const { events } = historyOf(name);
    return events[0]?.workflowExecutionStartedEventAttributes?.workflowType.name;
  });
  const index = readFileSync(path.join(ROOT, 'workflows', 'index.ts'), 'utf8');
  const exported = [...index.matchAll(/export \{([^}]*)\}/g)].flatMap(([, names]) =>
    names!.split(',').map((n) => n.trim()),
  );
  expect(new Set(recorded)).toEqual(new Set(exported));
});
