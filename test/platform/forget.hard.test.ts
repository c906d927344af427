/** After a user is forgotten, and the operator has had the stores written again, no file of them has anything of the user. */
import { globSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { newGameTurnReady, publishIntent } from '../../client/notificationintent.ts';
import type { Forgotten } from '../../client/forget.ts';
import { createDeviceTokens } from '../../dev/stand-ins/mobile-push/device-tokens.ts';
import { migrate } from '../../migrations/migrate.ts';
import { cliFor } from '../command-line.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import { placesWith } from '../kept.ts';
import { mobilePushOf } from '../mobile-push/jobs.ts';
import { GATEWAY, MAIL } from '../service-process.ts';
import type { OwnStack } from '../own-stack.ts';
import { startOwnStack } from '../own-stack.ts';

const NOTIFICATIONS = 1_000;
const OF_OTHERS = 100;
const LIMIT_MS = 60_000;

const GONE = 'planted-user-7f3a';
const PLANTED = [GONE, 'planted-7f3a@example.com', 'Planted Name 7f3a', 'planted-token-7f3a'];
const [, ADDRESS, NAME, TOKEN] = PLANTED as [string, string, string, string];

let own: OwnStack;
let slot: Slot;
let bench: ReturnType<typeof cliFor>;
beforeAll(async () => {
  own = await startOwnStack('forget');
  slot = await takeSlot({ ownStack: own.stack });
  bench = cliFor(slot);
}, 180_000);
afterAll(async () => {
  bench?.dispose();
  await slot?.release();
  await own?.stop();
}, 120_000);

/** Where the files are, by what the servers say themselves. PostgreSQL's log of changes is written over in turn. */
async function folders(): Promise<{ postgres: string; redis: string }> {
  const { rows } = await slot.db.query<{ data_directory: string }>('SHOW data_directory');
  const [, redis] = (await slot.redis.config('GET', 'dir')) as [string, string];
  return { postgres: rows[0]!.data_directory, redis };
}

/** The files that have one of the texts. */
function filesWith(folder: string, texts: readonly string[]): string[] {
  return globSync('**/*', { cwd: folder }).filter((name) => {
    const file = path.join(folder, name);
    if (!statSync(file).isFile()) return false;
    const bytes = readFileSync(file);
    return texts.some((text) => bytes.includes(text));
  });
}
const isOfLog = (name: string): boolean => name.startsWith('pg_wal');

test('I79 a minute after 1,000 notifications to a user, no file of PostgreSQL and Redis has anything of the user', async () => {
  await createDeviceTokens(slot.ownerDsn, { samples: false });
  await migrate(slot.ownerDsn);
  slot.userService.setUser(GONE, { email: ADDRESS, preferredLanguage: 'en' });
  await slot.startService({
    ...{ NOTIFICATION_ROLES: 'intent,mobile-push', NOTIFICATION_OUTCOMES: 'all' },
    // Many in little time.
    NOTIFICATION_ROUTE_DISPATCH: 'direct',
  });
  const publish = (n: number, userId: string, name: string) =>
    publishIntent(
      slot.redis,
      newGameTurnReady({
        ...{ idempotencyKey: `turn/${userId}/${n}`, recipientUserIds: [userId], occurredAt: Date.now() },
        ...{ requestId: `request/${userId}/${n}` },
        payload: { game_id: `game-${n}`, game_name: name, turn_number: n },
      }),
    );
  for (let n = 0; n < NOTIFICATIONS; n += 1) await publish(n, GONE, NAME);
  for (let n = 0; n < OF_OTHERS; n += 1) await publish(n, 'user-1', 'Andromeda');
  await slot.db.query('INSERT INTO public.device_token ("userId", token) VALUES ($1, $2)', [GONE, TOKEN]);
  const job = await mobilePushOf(slot).publishTo(GONE, { title: NAME });
  await mobilePushOf(slot).settled(job);
  const all = NOTIFICATIONS + OF_OTHERS;
  await eventually(
    'all to be told',
    async () => {
      const { rows } = await slot.db.query<{ told: number }>(
        `SELECT coalesce(sum(event_count), 0)::int AS told FROM notification.outcomes WHERE relayed_at IS NOT NULL`,
      );
      // Accepted, a push, an e-mail, and the end.
      return rows[0]!.told === 4 * all;
    },
    240_000,
  );
  await eventually('the job to be acknowledged', async () => {
    const [pending] = await slot.redis.xpending('stream.notifications.jobs', 'notifications');
    return pending === 0;
  });
  await slot.db.query('ANALYZE');
  await slot.db.query('CHECKPOINT');
  const { postgres, redis } = await folders();
  for (const text of PLANTED)
    expect(filesWith(postgres, [text]).filter((name) => !isOfLog(name))).not.toEqual([]);
  expect(filesWith(redis, PLANTED)).not.toEqual([]);

  // It keeps the newest thousand or so.
  const pushes = (await slot.redis.xlen(GATEWAY)) - OF_OTHERS;
  const beganMs = performance.now();
  const { code, value } = await bench.json<Forgotten>(['users', 'forget', GONE, '--also', NAME, '--yes']);
  expect(code).toBe(0);
  const counts = new Map(value.removed.map(({ what, count }) => [what, count]));
  expect(counts.get('notification.records')).toBe(NOTIFICATIONS);
  expect(counts.get('notification.routes')).toBe(2 * NOTIFICATIONS);
  expect([counts.get(GATEWAY), counts.get(MAIL)]).toEqual([pushes, NOTIFICATIONS]);
  expect(await slot.redis.xlen(GATEWAY)).toBe(OF_OTHERS);
  expect(await placesWith(slot, PLANTED)).toEqual([]);

  // As docs/operate/forget-a-user.md says: deleted bytes go when the files are written again.
  await slot.db.query('VACUUM (FULL, ANALYZE)');
  await slot.db.query('VACUUM FULL pg_catalog.pg_statistic');
  await slot.db.query('CHECKPOINT');
  for (const stream of [
    GATEWAY,
    MAIL,
    'notification:intents',
    'notification:outcomes',
    'stream.notifications.jobs',
  ]) {
    await slot.redis.xtrim(stream, 'MAXLEN', '=', 0);
  }
  await slot.redis.bgrewriteaof();
  await eventually('the append-only file to be written again', async () =>
    /aof_rewrite_in_progress:0[^]*aof_rewrite_scheduled:0/.test(await slot.redis.info('persistence')),
  );
  const left = filesWith(postgres, PLANTED);
  expect(left.filter((name) => !isOfLog(name))).toEqual([]);
  expect(filesWith(redis, PLANTED)).toEqual([]);
  const tookMs = performance.now() - beganMs;
  process.stderr.write(
    `forgotten, and gone from all files, within ${Math.round(tookMs)} ms; ${left.length} files of pg_wal\n`,
  );
  expect(tookMs).toBeLessThan(LIMIT_MS);
  expect(value.remains).toEqual(
    expect.arrayContaining([
      expect.objectContaining({
        what: expect.stringMatching(/^histories in Temporal/) as string,
        until: expect.any(String) as string,
      }),
    ]),
  );
}, 600_000);
