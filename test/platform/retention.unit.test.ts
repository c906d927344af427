/** Batches of retention, by a clock that statements move on. */
import type { Pool } from 'pg';
import pg from 'pg';
import { deleteExpired } from '../../dev/retention.ts';

const STATEMENT_TIMEOUT_MS = 5_000;

test('I44 a table is deleted from although PostgreSQL takes seconds for one row', async () => {
  const realNow = performance.now.bind(performance);
  let tookMs = 0;
  jest.spyOn(performance, 'now').mockImplementation(() => realNow() + tookMs);
  const tooLong = Object.assign(new pg.DatabaseError('canceling statement', 0, 'error'), { code: '57014' });
  const query = ({ values: [, limit] }: { values: [age: number, limit: number] }) => {
    if (limit === 1) return Promise.resolve({ rows: [{ deleted: 1, seen: 1, place: 'later' }] });
    tookMs += STATEMENT_TIMEOUT_MS;
    return Promise.reject(tooLong);
  };
  const slow = { name: 'slow', table: 'notification.slow', since: 'created_at', keepMs: 1 };
  const { deleted, isUnfinished } = await deleteExpired({ query } as unknown as Pool, [slow]);
  expect({ deleted, isUnfinished }).toEqual({ deleted: { slow: 2 }, isUnfinished: true });
});
