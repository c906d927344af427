/** The consumer group: what happens to entries when consumers, Redis, PostgreSQL or the service go away. */
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import { MOBILE_PUSH_WORKFLOW, mobileReplay } from '../../workflows/mobile-push/contract.ts';
import { eventually, slotOfEachTest } from '../harness.ts';
import { GROUP, JOBS, QUICK, mobileOfEachTest } from './jobs.ts';

const slot = slotOfEachTest();
const mobile = mobileOfEachTest(slot);

/** Gives all entries to a consumer that never acknowledges any. @param deliveries of some so far. */
async function deliverToTheDead(deliveries: Record<string, number> = {}): Promise<void> {
  await slot.redis.xgroup('CREATE', JOBS, GROUP, '0', 'MKSTREAM');
  await slot.redis.xreadgroup('GROUP', GROUP, 'dead', 'COUNT', 100, 'STREAMS', JOBS, '>');
  for (const [id, count] of Object.entries(deliveries))
    await slot.redis.xclaim(JOBS, GROUP, 'dead', 0, id, 'RETRYCOUNT', count);
}
const acknowledged = () => eventually('the acknowledgements', async () => (await mobile.pending()) === 0);

/** Writes the job of another entry down. */
const writeDown = (jobId: string, userId: string) =>
  slot.db.query(
    `INSERT INTO notifications.notification_log (job_id, user_id, content, entry_hash)
     VALUES ($1, $2, $3, 'another')`,
    [jobId, userId, { title: 'T', data: {} }],
  );

test('M2 of what a dead consumer had, one delivered five times is given up, recorded and can be replayed; one that was deleted is lost, unless its job is known', async () => {
  const { userId } = await mobile.userWith('phone');
  const before = await slot.startService(QUICK);
  const unacknowledged = await mobile.publishTo(userId);
  await mobile.settled(unacknowledged);
  await before.stop();
  await slot.redis.xgroup('DESTROY', JOBS, GROUP);
  const givenUp = await mobile.publishTo(userId);
  const last = await mobile.publishTo(userId);
  const known = await mobile.publishTo(userId);
  await writeDown(known, userId);
  const lost = await mobile.publishTo(userId);
  await deliverToTheDead({ [givenUp]: 5, [last]: 4, [unacknowledged]: 9 });
  await slot.redis.xdel(JOBS, known, lost);
  await slot.startService(QUICK);

  for (const jobId of [last, known]) expect(await mobile.settled(jobId)).toMatchObject({ status: 'sent' });
  expect(await mobile.settled(givenUp)).toMatchObject({
    status: 'max_retries',
    error_message: 'delivered 5 times without being taken',
  });
  await acknowledged();
  expect(await mobile.logRow(unacknowledged)).toMatchObject({ status: 'sent' });
  expect(mobile.requests()).toEqual({ phone: 3 });
  expect(mobile.logged('notifications.max_retries')).toEqual([
    expect.objectContaining({ job_id: givenUp, deliveries: 5, level: 'error' }),
  ]);
  expect(slot.logs).toContainEqual(
    expect.objectContaining({ level: 'error', stream: JOBS, entries: 1, job_ids: [lost] }),
  );

  await slot.client.workflow.signalWithStart(MOBILE_PUSH_WORKFLOW, mobileReplay(givenUp, 'user', {}));
  await mobile.sent(givenUp);
});

describe('a stream that begins again and gives ids once more', () => {
  const rowsOf = async (id: string) => {
    const { rows } = await slot.db.query<{ user_id: string; status: string }>(
      `SELECT user_id, status FROM notifications.notification_log WHERE job_id LIKE $1 || '%' ORDER BY created_at`,
      [id],
    );
    return rows.map(({ user_id, status }) => [user_id, status]);
  };
  /** As an empty Redis does whose clock is behind. */
  const publishAgain = async (id: string, ...fields: string[]) => {
    await slot.redis.del(JOBS);
    await slot.redis.xadd(JOBS, id, ...fields);
  };

  test('kinds-F4 M1 loses none: each job of the same id is recorded under another one, and sent once', async () => {
    const [a, b] = [await mobile.userWith('phone of A'), await mobile.userWith('phone of B')];
    await slot.startService(QUICK);
    const id = await mobile.publishTo(a.userId);
    await mobile.settled(id);

    const jobs = [
      ['userId', b.userId, 'title', 'Secret title'],
      ['userId', b.userId, 'title', 'Another title'],
      ['userId', b.userId, 'badge', 'malformed'],
      // Delivered once more, after what had its id before.
      ['userId', b.userId, 'title', 'Secret title'],
    ];
    for (const fields of jobs) {
      await publishAgain(id, ...fields);
      await eventually('the entry to be acknowledged', async () => {
        const groups = (await slot.redis.xinfo('GROUPS', JOBS).catch(() => [])) as (string | number)[][];
        const group = groups[0] ?? [];
        const value = (name: string) => group[group.indexOf(name) + 1];
        return value('last-delivered-id') === id && value('pending') === 0;
      });
    }
    await eventually('all to be sent', async () => !(await rowsOf(id)).some(([, end]) => end === 'pending'));
    expect(await rowsOf(id)).toEqual([
      [a.userId, 'sent'],
      [b.userId, 'sent'],
      [b.userId, 'sent'],
      [b.userId, 'malformed'],
    ]);
    expect(mobile.requests()).toEqual({ 'phone of A': 1, 'phone of B': 2 });
    expect(slot.logs.filter(({ entry_id }) => entry_id === id).length).toBeGreaterThanOrEqual(3);
  });

  test('kinds-F4 M2 a job that is given up does not give up the one that had its id', async () => {
    const [a, b] = [await mobile.userWith('phone of A'), await mobile.userWith('phone of B')];
    const id = await mobile.publishTo(b.userId);
    await writeDown(id, a.userId);
    await deliverToTheDead({ [id]: 5 });
    await slot.startService(QUICK);

    await acknowledged();
    expect(await rowsOf(id)).toEqual([
      [a.userId, 'pending'],
      [b.userId, 'max_retries'],
    ]);
  });
});

test('M1 M2 the consumer survives the loss of its connection and of its group', async () => {
  const { userId } = await mobile.userWith('phone');
  await slot.startService(QUICK);
  await mobile.settled(await mobile.publishTo(userId));

  const reader = await eventually('the reader to read', async () => {
    const clients = (await slot.redis.client('LIST')) as string;
    return new RegExp(`^id=(\\d+) .* flags=b db=${slot.slot} .* cmd=xread `, 'm').exec(clients)?.[1];
  });
  await slot.redis.client('KILL', 'ID', Number(reader));
  expect(await mobile.settled(await mobile.publishTo(userId))).toMatchObject({ status: 'sent' });

  // As after a Redis that was restored from nothing.
  await slot.redis.del(JOBS);
  await eventually('the group to be made again', async () => (await slot.redis.exists(JOBS)) === 1);
  expect(await mobile.settled(await mobile.publishTo(userId))).toMatchObject({ status: 'sent' });
  expect(mobile.requests()).toEqual({ phone: 3 });
});

test('M1 M2 while PostgreSQL is away entries wait and spend none of their deliveries', async () => {
  const { userId } = await mobile.userWith('phone');
  await slot.startService({ ...QUICK, NOTIFICATION_MOBILE_MAX_DELIVERY_COUNT: '1' });
  await mobile.settled(await mobile.publishTo(userId));
  const outage = await slot.cutOffDatabase();
  const jobId = await mobile.publishTo(userId);
  await eventually('the consumer to wait', async () =>
    slot.logs.some(({ msg }) => msg === 'PostgreSQL or Temporal is away; mobile jobs wait'),
  );
  const sentAtMs = Number(jobId.split('-')[0]);
  await eventually(
    'an entry that is old enough to be claimed thrice',
    async () => Date.now() > sentAtMs + 1_000,
  );
  await outage.restore();

  expect(await mobile.settled(jobId)).toMatchObject({ status: 'sent' });
  expect(mobile.logged('notifications.max_retries')).toEqual([]);
});

test('M8 M10 a service that stops in the middle loses nothing and sends nothing twice', async () => {
  const phones = Array.from({ length: 30 }, (_, index) => `phone-${index}`);
  const users = await Promise.all(phones.map((phone) => mobile.userWith(phone)));
  const answers = holdAnswers();
  for (const token of phones.slice(5)) slot.fcm.fail({ token, failure: answers.failure });
  const first = await slot.startService(QUICK);
  const jobs = await Promise.all(users.map(({ userId }) => mobile.publishTo(userId)));
  for (const jobId of jobs.slice(0, 5)) await mobile.sent(jobId);
  await answers.arrived;
  const stopping = first.stop();
  answers.release();
  await stopping;
  await slot.startService(QUICK);

  for (const jobId of jobs) expect(await mobile.settled(jobId)).toMatchObject({ status: 'sent' });
  expect(mobile.requests()).toEqual(Object.fromEntries(phones.map((phone) => [phone, 1])));
});

test('M10 a service with credentials that cannot be used does not start, and says why', async () => {
  const fcm = { credentialsFile: '/nowhere/account.json' };
  await expect(slot.startService(QUICK, { fcm })).rejects.toThrow(
    /cannot reach FCM \(GOOGLE_APPLICATION_CREDENTIALS.*\/nowhere\/account\.json cannot be read: ENOENT/,
  );
});
