/**
 * Puts back what an outbound stream has lost: entries that were acknowledged and handed off, and that a restarted or
 * switched Redis does not have any more. Started by the watch over the streams, once for all that it finds.
 */
import { proxyActivities, setCurrentDetails } from '@temporalio/workflow';
import type { RepairActivities } from '../../activities/intent/repair.ts';
import { STEERING } from '../policies.ts';
import type { RepairProgress } from './repair-contract.ts';

const { repairStream } = proxyActivities<RepairActivities>(STEERING);

/**
 * @param stream name of the outbound Redis Stream, e.g. `gateway:client-events`.
 * @param settlingMs until every hand-off from before has its row written, ms.
 */
export async function outboundRepair(
  stream: string,
  settlingMs: number,
): Promise<Omit<RepairProgress, 'before'>> {
  setCurrentDetails(`Looking in \`${stream}\` for the entries of published routes, from the newest on.`);
  const { checked, repaired } = await repairStream(stream, settlingMs);
  setCurrentDetails(`Looked for ${checked} entries in \`${stream}\` and handed ${repaired} off again.`);
  return { checked, repaired };
}
