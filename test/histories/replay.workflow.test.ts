/** Recorded histories replayed with today's workflow code: a change that open executions cannot follow fails here. */
import { readFileSync, readdirSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { DeterminismViolationError } from '@temporalio/workflow';
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

const typeOf = (name: string): string | undefined =>
  historyOf(name).events[0]?.workflowExecutionStartedEventAttributes?.workflowType.name;

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

test('I40 a changed workflow does not replay what the old one did', async () => {
  const code = await readFile((await workflowBundle()).codePath, 'utf8');
  const beginning = 'async function notification(intent) {\n';
  const [front, back, ...others] = code.split(beginning);
  expect([typeof back, others]).toEqual(['string', []]);
  const sdk = /.*\b(_temporalio_workflow__WEBPACK_IMPORTED_MODULE_\d+__)\./s.exec(front!)![1]!;
  const changed = { code: `${front}${beginning}await ${sdk}.sleep(1_000);\n${back}` };
  await expect(
    Worker.runReplayHistory(
      { workflowBundle: changed },
      historyOf(NAMES.find((name) => typeOf(name) === 'notification')!),
    ),
  ).rejects.toThrow(DeterminismViolationError);
});

test('every workflow of the bundle has a recorded history', () => {
  const index = readFileSync(path.join(ROOT, 'workflows', 'index.ts'), 'utf8');
  const exported = [...index.matchAll(/export \{([^}]*)\}/g)].flatMap(([, names]) =>
    names!.split(',').map((n) => n.trim()),
  );
  expect(new Set(NAMES.map(typeOf))).toEqual(new Set(exported));
});
