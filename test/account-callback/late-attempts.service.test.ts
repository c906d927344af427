/** What becomes of a pause that a process writes after it stood still. */
import { createPauseActivities } from '../../activities/account-callback/pauses.ts';
import { createLogger } from '../../workers/logger.ts';
import type { Slot } from '../harness.ts';
import { takeSlot } from '../harness.ts';
import { REFUSED, runLate } from '../late-attempts.ts';

let slot: Slot;
beforeAll(async () => {
  slot = await takeSlot();
});
afterAll(() => slot.release());

test('kinds-F2 a late pause of a shard does not undo the resume that came after it', async () => {
  const pauses = createPauseActivities({ db: slot.db, log: createLogger('silent') });
  const late = await runLate(slot, pauses, {
    ...{ name: 'setShardPaused', args: [1, true, 'nina'] },
    between: () => pauses.setShardPaused(1, false, 'otto'),
  });
  expect(late).toMatchObject(REFUSED);
  expect(await pauses.loadShardPause(1)).toEqual({ resumedMs: expect.any(Number) });
});
