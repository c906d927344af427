/** Holds as rows, without the workflows that steer by them: late writes, and requests that cannot be stored. */
import { createHoldActivities } from '../../activities/holds.ts';
import { createLogger } from '../../workers/logger.ts';
import type { HoldKey } from '../../workflows/hold-contract.ts';
import { OperationFailedError } from '../../client/errors.ts';
import { operatorOf, slotOfTests } from '../harness.ts';
import { REFUSED, runLate } from '../late-attempts.ts';

const slot = slotOfTests();

const holds = () => createHoldActivities({ db: slot.db, log: createLogger('silent') });

test.each<HoldKey>([
  { kind: 'channel', name: 'push' },
  { kind: 'producer', name: 'game_master' },
  { kind: 'shard', name: '1' },
])('kinds-F2 a late pause of a $kind does not undo the resume that came after it', async (key) => {
  const { setHold, loadHold } = holds();
  expect(await loadHold(key)).toEqual({ isPaused: false, sinceMs: 0 });
  const late = await runLate(slot, holds(), {
    ...{ name: 'setHold', args: [key, true, { requestedBy: 'nina' }] },
    between: () => setHold(key, false, { requestedBy: 'otto' }),
  });
  expect(late).toMatchObject(REFUSED);
  expect(await loadHold(key)).toEqual({
    ...{ isPaused: false, requestedBy: 'otto', sinceMs: expect.any(Number) },
    ...(key.kind === 'shard' ? {} : { drainRate: 50 }),
  });
});

test('I26 C9 a pause whose reason cannot be stored is refused before anything is held', async () => {
  const { channels, producers, callbacks, actions } = operatorOf(slot);
  for (const reason of ['x'.repeat(501), 'a\0b']) {
    for (const refused of [
      channels.pause('email', { reason }),
      producers.pause('game_lobby', { reason }),
      callbacks.pause(0, { reason }),
    ]) {
      await expect(refused).rejects.toThrow(
        new OperationFailedError('reason must be a text of at most 500 characters'),
      );
    }
  }
  const { loadHold } = holds();
  for (const key of [
    { kind: 'channel', name: 'email' },
    { kind: 'producer', name: 'game_lobby' },
    { kind: 'shard', name: '0' },
  ] as const) {
    expect(await loadHold(key)).toEqual({ isPaused: false, sinceMs: 0 });
  }
  expect((await actions.list()).items.filter(({ requestedBy }) => requestedBy === 'operator')).toEqual([]);
});
