/**
 * Records histories for test/histories/replay.workflow.test.ts: `npm run histories:record` runs tests of all steps of work, and
 * keeps the history of each workflow in which one event follows another as in no history of its type yet. Run it after a
 * workflow has been changed on purpose, and keep the old files for as long as executions of the old code may still be open.
 */
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import path from 'node:path';
import type { Client } from '@temporalio/client';
import { historyToJSON } from '../sdk-internals.ts';

/** As much of an event as tells one from another. */
interface RecordedEvent {
  eventType: string;
  [attributes: `${string}EventAttributes`]: {
    workflowType?: { name: string };
    activityType?: { name: string };
    signalName?: string;
    acceptedRequest?: { input?: { name?: string } };
  };
}

/** Longer ones say no more, and are slow to replay. */
const MOST_EVENTS = 500;

const eventsOf = (history: string): RecordedEvent[] =>
  (JSON.parse(history) as { events: RecordedEvent[] }).events;

/** When the server has given a task to a worker says nothing about the code. */
const OF_THE_SERVER = /WORKFLOW_TASK|ACTIVITY_TASK_STARTED/;

/** Which events follow each other, with the names of activities, children, signals and updates. */
function stepsOf(events: readonly RecordedEvent[]): string[] {
  const names = events.flatMap(({ eventType, ...event }) => {
    if (OF_THE_SERVER.test(eventType)) return [];
    const [attributes] = Object.entries(event).flatMap(([key, value]) =>
      key.endsWith('EventAttributes') ? [value] : [],
    );
    const { activityType, workflowType, signalName, acceptedRequest } = attributes ?? {};
    const name = activityType?.name ?? workflowType?.name ?? signalName ?? acceptedRequest?.input?.name;
    return [`${eventType} ${name}`];
  });
  return names.map((name, at) => `${names[at - 1]} > ${name}`);
}

/** What is recorded in a folder: steps by the types of workflows, and how many histories of each type. */
function recordedIn(folder: string): Map<string, { steps: Set<string>; histories: number }> {
  const recorded = new Map<string, { steps: Set<string>; histories: number }>();
  for (const file of readdirSync(folder).filter((name) => name.endsWith('.json'))) {
    const events = eventsOf(readFileSync(path.join(folder, file), 'utf8'));
    const type = events[0]!['workflowExecutionStartedEventAttributes']!.workflowType!.name;
    const { steps = [], histories = 0 } = recorded.get(type) ?? {};
    recorded.set(type, { steps: new Set([...steps, ...stepsOf(events)]), histories: histories + 1 });
  }
  return recorded;
}

/** In the JSON that operators export from the Web UI as well. */
export async function recordHistories({ workflow }: Client, folder: string): Promise<void> {
  const recorded = recordedIn(folder);
  for await (const { workflowId, runId, type, historyLength } of workflow.list()) {
    if (historyLength > MOST_EVENTS) continue;
    const history = JSON.stringify(
      JSON.parse(historyToJSON(await workflow.getHandle(workflowId, runId).fetchHistory())),
    );
    const { steps, histories } = recorded.get(type) ?? { steps: new Set<string>(), histories: 0 };
    const found = stepsOf(eventsOf(history));
    if (found.every((step) => steps.has(step))) continue;
    recorded.set(type, { steps: new Set([...steps, ...found]), histories: histories + 1 });
    // Stack traces, identities and sticky queues name the machine that recorded.
    const anonymous = history
      .replaceAll(`${path.join(import.meta.dirname, '../..')}/`, '')
      // Packages may be linked from another folder.
      .replaceAll(/(?:\/[\w.+-]+)+(?=\/node_modules\/)\//g, '')
      .replaceAll(new RegExp(`\\d+@${hostname()}`, 'g'), 'recorder');
    writeFileSync(path.join(folder, `${type}-${histories + 1}.json`), `${anonymous}\n`);
  }
}
