/** Recorded histories replayed with today's workflow code: a change that open executions cannot follow fails here. */
import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { DefaultLogger, Runtime, Worker } from '@temporalio/worker';
import { workflowBundle } from '../workers/workflow-bundle.ts';

const FOLDER = path.join(import.meta.dirname, 'histories');
const NAMES = readdirSync(FOLDER).map((file) => path.basename(file, '.json'));

beforeAll(() => Runtime.install({ logger: new DefaultLogger('WARN') }));

test.each(NAMES)('I40 the recorded history %s replays', async (name) => {
  const history: unknown = JSON.parse(readFileSync(path.join(FOLDER, `${name}.json`), 'utf8'));
  const replay = Worker.runReplayHistory(
    { workflowBundle: await workflowBundle(), replayName: name },
    history,
  );
  await expect(replay).resolves.toBeUndefined();
});

test('every workflow of the bundle has a recorded history', () => {
  const recorded = NAMES.map((name) => {
    const { events } = JSON.parse(readFileSync(path.join(FOLDER, `${name}.json`), 'utf8')) as {
      events: { workflowExecutionStartedEventAttributes?: { workflowType: { name: string } } }[];
    };
    return events[0]?.workflowExecutionStartedEventAttributes?.workflowType.name;
  });
  const index = readFileSync(path.join(FOLDER, '..', '..', 'workflows', 'index.ts'), 'utf8');
  const exported = [...index.matchAll(/export \{([^}]*)\}/g)].flatMap(([, names]) =>
    names!.split(',').map((n) => n.trim()),
  );
  expect(new Set(recorded)).toEqual(new Set(exported));
});
