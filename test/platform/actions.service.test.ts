/** Who asked for a change is written down before it is made, or with it. */
import { byAuthor } from '../../client/actions.ts';
import { NothingToDoError, OperationFailedError, UnansweredError } from '../../client/errors.ts';
import { slotOfTests, operatorOfTests } from '../harness.ts';

const slot = slotOfTests();
const operator = operatorOfTests(slot);
beforeEach(() => slot.db.query('DELETE FROM notification.operator_actions'));

const actions = async () => (await operator.actions.list()).items;
const BY = { action: 'symbols push', requestedBy: 'nina' };

test('U7 while a change is made its author is known already', async () => {
  const during = await byAuthor(slot, { ...BY, target: 'main', detail: 'version 7' }, actions);
  const dbUser = expect.any(String) as string;
  expect(during).toMatchObject([{ ...BY, target: 'main', detail: 'version 7', dbUser }]);
  expect(await actions()).toEqual(during);
});

test('U7 of what was refused the list says so', async () => {
  for (const error of [new OperationFailedError('no'), new NothingToDoError('nothing')]) {
    await slot.db.query('DELETE FROM notification.operator_actions');
    await expect(byAuthor(slot, BY, () => Promise.reject(error))).rejects.toBe(error);
    const [refused, asked] = await actions();
    expect(refused).toMatchObject({ ...BY, detail: 'refused' });
    expect(asked).toMatchObject(BY);
    expect(asked).not.toHaveProperty('detail');
  }
});

test('U7 an unanswered action may still be done: its author stays', async () => {
  for (const error of [new UnansweredError('no worker'), new Error('connection lost')]) {
    await expect(byAuthor(slot, BY, () => Promise.reject(error))).rejects.toBe(error);
  }
  await expect(operator.symbols.push({ requestedBy: 'max' })).rejects.toThrow(UnansweredError);
  expect((await actions()).map(({ requestedBy }) => requestedBy)).toEqual(['max', 'nina', 'nina']);
});

test('U7 a change of rows and its author are one transaction', async () => {
  await slot.db.query(`
    INSERT INTO notification.callback_trackings
    VALUES ('ann', 0, '1-0', NULL, true, 'epoch', 'epoch', now()), ('ben', 0, '1-0', NULL, false, 'epoch', 'epoch', now())`);
  const { release } = operator.callbacks;
  await expect(release(['ben'], { requestedBy: 'nina' })).rejects.toThrow('no such tracking');
  expect(await actions()).toEqual([]);

  // The author cannot be written down: then nothing is changed either.
  await slot.db.query('ALTER TABLE notification.operator_actions RENAME TO elsewhere');
  await expect(release(['ann'])).rejects.toThrow('operator_actions');
  await slot.db.query('ALTER TABLE notification.elsewhere RENAME TO operator_actions');
  await release(['ann']);
  expect(await actions()).toMatchObject([
    { action: 'callbacks release', detail: '1 tracking', requestedBy: 'operator' },
  ]);
});

test('I26 a pause whose reason cannot be stored is refused before anything is held', async () => {
  const { channels, producers } = operator;
  for (const reason of ['x'.repeat(501), 'a\0b']) {
    for (const refused of [channels.pause('email', { reason }), producers.pause('game_lobby', { reason })]) {
      await expect(refused).rejects.toThrow(
        new OperationFailedError('reason must be a text of at most 500 characters'),
      );
    }
  }
  for (const view of [...(await channels.list()), ...(await producers.list())])
    expect(view).toMatchObject({ status: 'open' });
  expect(await actions()).toEqual([]);
});
