/**
 * What one intent for one recipient leaves on the server: the state transitions and history events of its notification
 * and of all children together. One intent at a time, since transitions that only a busy server makes, such as those of
 * a time-out, would say nothing about the code.
 */
import { WorkflowNotFoundError } from '@temporalio/client';
import { routeRefOf } from '../api/ids.ts';
import { notificationWorkflowId, routeWorkflowId } from '../workflows/intent/contract.ts';
import type { Bench, Mode, Part } from './environment.ts';
import { MODES } from './environment.ts';
import { ROUTES_PER_RECIPIENT, appendIntents, routesSettled, serviceOf } from './intent.ts';
import type { Measurement } from './measurement.ts';
import { medianOf } from './rounds.ts';

const INTENTS = 5;
const MOST_TRANSITIONS: Record<Mode, number> = { child: 21, on_failure: 3 };

export const footprint: Measurement = {
  name: 'footprint',
  meaning: 'what one intent for one recipient, push and e-mail, leaves on the Temporal server',
  isQuick: true,
  rows: MODES.flatMap((mode) => [
    {
      name: `footprint.${mode}.state-transitions`,
      unit: '',
      target: { atMost: MOST_TRANSITIONS[mode] },
      meaning: 'writes of mutable state, notification and children',
    },
    {
      name: `footprint.${mode}.history-events`,
      unit: '',
      meaning: 'history events, notification and children',
    },
    { name: `footprint.${mode}.workflows`, unit: '', meaning: 'the notification and its children' },
  ]),

  async run(bench) {
    const findings = [];
    for (const mode of MODES) {
      const found = await footprintsOf(bench, mode);
      findings.push(
        medianOf(
          `footprint.${mode}.state-transitions`,
          found.map(({ transitions }) => transitions),
        ),
        medianOf(
          `footprint.${mode}.history-events`,
          found.map(({ events }) => events),
        ),
        medianOf(
          `footprint.${mode}.workflows`,
          found.map(({ workflows }) => workflows),
        ),
      );
    }
    return findings;
  },
};

interface Footprint {
  transitions: number;
  events: number;
  workflows: number;
}

async function footprintsOf(bench: Bench, mode: Mode): Promise<Footprint[]> {
  await serviceOf(bench, mode);
  const part = await bench.part(mode);
  const found: Footprint[] = [];
  for (let n = 1; n <= INTENTS; n += 1) {
    const [notificationId = ''] = await appendIntents(part, 1);
    await routesSettled(part, [notificationId], ROUTES_PER_RECIPIENT);
    await part.client.workflow.getHandle(notificationWorkflowId(notificationId)).result();
    found.push(await footprintOf(part, notificationId));
    bench.report(`${mode}: ${found.at(-1)!.transitions} state transitions`);
  }
  return found;
}

/** The server's own figures, of the notification and of the routes that have a workflow. */
async function footprintOf({ db, client }: Part, notificationId: string): Promise<Footprint> {
  const { rows } = await db.query<{ route_id: string }>(
    'SELECT route_id FROM notification.routes WHERE notification_id = $1',
    [notificationId],
  );
  const routes = rows.map(({ route_id }) => routeWorkflowId(notificationId, routeRefOf(route_id)));
  const sum: Footprint = { transitions: 0, events: 0, workflows: 0 };
  for (const workflowId of [notificationWorkflowId(notificationId), ...routes]) {
    const found = await client.workflow
      .getHandle(workflowId)
      .describe()
      .catch((error: unknown) => {
        if (error instanceof WorkflowNotFoundError) return undefined;
        throw error;
      });
    if (!found) continue;
    sum.transitions += Number(found.raw.workflowExecutionInfo?.stateTransitionCount ?? Number.NaN);
    sum.events += found.historyLength;
    sum.workflows += 1;
  }
  return sum;
}
