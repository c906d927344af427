/** Slices as operators see them: which one took an intent. */
import { compareEntryIds } from '../../api/stream-ids.ts';
import { OPEN_SLICES, sliceOfWorkflowId, sliceWorkflowId } from '../../workflows/intent/slice-contract.ts';
import type { OperatorResources } from '../resources.ts';
import { bounded } from '../temporal.ts';

/** Slices that run and are looked through: those of a backlog of some ten thousand intents. */
const MOST_RUNNING = 1_000;
/** Of those that begin before an intent, the last ones are asked whether they have it; there are some for each producer. */
const MOST_ASKED = 20;

/**
 * @returns the workflow id of the slice that took an intent first, as its rows say or, before it has any, the slices that
 * run; undefined when none did. @throws what PostgreSQL and the Temporal client throw.
 */
export async function findSlice(
  resources: Pick<OperatorResources, 'db' | 'temporal'>,
  notificationId: string,
): Promise<string | undefined> {
  const { rows } = await resources.db.query<{ slice: string | null }>(FIND_SLICE, [notificationId]);
  const [row] = rows;
  if (row) return row.slice === null ? undefined : sliceWorkflowId(row.slice);
  return findRunningSlice(resources, notificationId);
}

async function findRunningSlice(
  { temporal }: Pick<OperatorResources, 'temporal'>,
  notificationId: string,
): Promise<string | undefined> {
  const slices = await bounded(temporal, async () => {
    const found: string[] = [];
    for await (const { workflowId } of temporal.workflow.list({
      query: OPEN_SLICES,
      pageSize: MOST_RUNNING,
    })) {
      if (found.push(sliceOfWorkflowId(workflowId)) === MOST_RUNNING) break;
    }
    return found;
  });
  const before = slices
    .filter((slice) => compareEntryIds(slice, notificationId) <= 0)
    .sort((a, b) => compareEntryIds(b, a));
  for (const slice of before.slice(0, MOST_ASKED)) {
    const workflowId = sliceWorkflowId(slice);
    const details = await bounded(temporal, async () => {
      const description = await temporal.workflow.getHandle(workflowId).describe();
      return description.staticDetails();
    });
    if (details?.split('\n').includes(notificationId)) return workflowId;
  }
  return undefined;
}

const FIND_SLICE = `
  SELECT slice_id AS slice FROM notification.records WHERE notification_id = $1
   UNION ALL
  SELECT intent ->> 'slice' FROM notification.waiting_intents WHERE notification_id = $1
   LIMIT 1`;
