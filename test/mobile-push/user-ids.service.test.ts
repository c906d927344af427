/** Users by the id that jobs carry, against a table of tokens whose owner has decided for another type. */
import { randomUUID } from 'node:crypto';
import { cliFor } from '../command-line.ts';
import { slotOfEachTest } from '../harness.ts';
import { QUICK, mobileOfEachTest } from './jobs.ts';

const slot = slotOfEachTest();
const mobile = mobileOfEachTest(slot);

/** @returns a job for `userId`, whose device is registered under `written`. */
async function jobFor(type: 'uuid' | 'integer', written: string, userId: string): Promise<string> {
  await slot.db.query(
    `ALTER TABLE public.device_token ALTER COLUMN "userId" TYPE ${type} USING "userId"::${type}`,
  );
  await slot.db.query('INSERT INTO public.device_token ("userId", token) VALUES ($1, $2)', [
    written,
    'phone',
  ]);
  await slot.startService(QUICK);
  return mobile.publishTo(userId);
}

test('kinds-V5 M4 a uuid in capitals is the user whose devices the table has in small letters', async () => {
  const uuid = randomUUID();
  const jobId = await jobFor('uuid', uuid, uuid.toUpperCase());

  expect(await mobile.settled(jobId)).toMatchObject({ status: 'sent', sent: 1 });
});

test('kinds-V5 M4 a number with leading zeros is the user; an id that is no number ends as a failed job', async () => {
  const jobId = await jobFor('integer', '7', '007');
  const impossible = await mobile.publishTo('guest-7');

  expect(await mobile.settled(jobId)).toMatchObject({ status: 'sent', sent: 1 });
  const row = await mobile.settled(impossible);
  expect(row).toMatchObject({ status: 'failed', tokens: 0, error_code: 'user_id_refused' });
  // What a replay needs, when the other table has changed.
  expect(row.content).toMatchObject({ title: 'Secret title' });
  expect((await mobile.ended(impossible)).status.name).toBe('FAILED');

  const { json, dispose } = cliFor(slot);
  const list = await json<{ items: object[] }>(['mobile', 'list', '--replayable']);
  dispose();
  expect(list.value.items).toMatchObject([{ jobId: impossible, errorCode: 'user_id_refused' }]);
});
