/** A slot with the stand-in portfolio service and the service's role for it. */
import type { Redis } from 'ioredis';
import type { Undelivered } from '../../activities/account-callback/inputs.ts';
import { storeInputs } from '../../activities/account-callback/inputs.ts';
import type { CallbackKind } from '../../api/account-callback/callback.ts';
import type { CallbackInput } from '../../api/account-callback/input.ts';
import { startPortfolioService } from '../../dev/stand-ins/account-callback/portfolio-service.ts';
import type { CallerProof } from '../../client/webhook-proof.ts';
import type { Service } from '../../workers/service.ts';
import type { CallbackState } from '../../workflows/account-callback/contract.ts';
import { RUN_NOW_UPDATE, accountCallbackWorkflowId } from '../../workflows/account-callback/contract.ts';
import type { Slot } from '../harness.ts';
import { DAY, HOUR } from './values.ts';
import { eventually, operatorOf, takeSlot } from '../harness.ts';
import { shared } from '../of-tests.ts';

export { DAY, HOUR, MINUTE, day, expectationsOf, hour, track, untrack } from './values.ts';

/** A midnight of UTC. */
export const MIDNIGHT = Date.UTC(2026, 2, 29);
/** For entries that come through the stream. */
export const NOON_YESTERDAY = Math.floor(Date.now() / DAY) * DAY - 12 * HOUR;

export const CALLBACK_ENV = {
  NOTIFICATION_ROLES: 'account-callback',
  NOTIFICATION_CALLBACK_SHARDS: '1',
  // A shard that a test has ended stays so.
  NOTIFICATION_RECONCILIATION_INTERVAL: '24h',
};

/**
 * The bench of a file of tests.
 *
 * @param given another owner's slot, which that owner releases. Default: one that is taken for it.
 * @param proof what the portfolio service asks of a caller.
 */
export const { ofTests: benchOfTests } = shared(takeCallbackBench, (bench) => bench.release());

async function takeCallbackBench(given?: Slot, proof?: CallerProof) {
  const slot = given ?? (await takeSlot());
  // What a test stores before the first start has its shard already.
  if (!given) await slot.db.query('UPDATE notification.callback_settings SET shards = 1');
  const portfolio = await startPortfolioService(proof ? { proof } : {});
  let entries = 0;
  const rows = async <Row extends object>(sql: string, values: unknown[] = []): Promise<Row[]> =>
    (await slot.db.query<Row>(sql, values)).rows;

  return {
    slot,
    portfolio,
    rows,
    /** One shard unless `env` says otherwise. */
    startService: (env?: Record<string, string>): Promise<Service> =>
      slot.startService({ ...CALLBACK_ENV, ...env }, { portfolioUrl: portfolio.url }),
    /** As `storeInputs`, each with an entry id that is later than all before. */
    store: (inputs: readonly CallbackInput[]): Promise<Undelivered> =>
      storeInputs(
        slot.db,
        inputs.map((input) => ({ id: `${MIDNIGHT}-${(entries += 1)}`, input })),
      ),
    runNow: (shard = 0) =>
      slot.client.workflow
        .getHandle(accountCallbackWorkflowId(shard))
        .executeUpdate<CallbackState, []>(RUN_NOW_UPDATE),
    operator: () => operatorOf(slot, 'http://ui.test'),
    /** Callbacks of a kind that were received. */
    calls: (kind: CallbackKind) => portfolio.calls.filter((call) => call.kind === kind),
    /** Waits until nothing is left to deliver for the first time, except days of users who have one to be retried. */
    settled: async (limitMs?: number): Promise<void> => {
      await eventually(
        'all callbacks to be tried',
        async () => {
          const [row] = await rows<{ left: number }>(
            `SELECT count(*)::int AS left
               FROM notification.callback_snapshots AS snapshot
              WHERE status = 'pending'
                AND (kind = 'hourly' OR NOT EXISTS (
                     SELECT FROM notification.failed_callbacks AS failed
                      WHERE failed.user_id = snapshot.user_id AND failed.kind = 'daily'
                        AND next_attempt_at IS NOT NULL))`,
          );
          if (row!.left === 0) return true;
          throw new Error(`${row!.left} are left`);
        },
        limitMs,
      );
    },
    /** Forgets all users and callbacks. */
    async empty(): Promise<void> {
      portfolio.forget();
      // An activity of a terminated alarm may be in the middle of a transaction over these tables.
      await eventually('the tables to be empty', async () => {
        await slot.db.query(
          'TRUNCATE notification.callback_trackings, notification.callback_snapshots, notification.failed_callbacks',
        );
        return true;
      });
    },
    async release(): Promise<void> {
      if (!given) await slot.release();
      await portfolio.stop();
    },
  };
}

/** Waits until consumers have taken all account inputs that there are. */
export const inputsTaken = (redis: Redis) =>
  eventually('all inputs to be taken', async () => {
    const [info] = (await redis.xinfo('GROUPS', 'stream.account.extremes')) as (string | number)[][];
    const value = (name: string) => info![info!.indexOf(name) + 1];
    return value('pending') === 0 && value('lag') === 0;
  });
