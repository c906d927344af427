/** What becomes of a pause that a process writes after it stood still. */
import { createChannelActivities } from '../../activities/intent/channels.ts';
import { createLogger } from '../../workers/logger.ts';
import type { Slot } from '../harness.ts';
import { takeSlot } from '../harness.ts';
import { REFUSED, runLate } from '../late-attempts.ts';

let slot: Slot;
beforeAll(async () => {
  slot = await takeSlot();
});
afterAll(() => slot.release());

test('kinds-F2 a late pause of a channel does not undo the resume that came after it', async () => {
  const { db, client } = slot;
  const channels = createChannelActivities({ db, log: createLogger('silent'), workflows: client.workflow });
  const late = await runLate(slot, channels, {
    ...{ name: 'setChannelPaused', args: ['push', true, 'nina'] },
    between: () => channels.setChannelPaused('push', false, 'otto'),
  });
  expect(late).toMatchObject(REFUSED);
  expect(await channels.loadChannel('push')).toMatchObject({ status: 'open', requestedBy: 'otto' });
});
