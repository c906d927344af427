/**
 * Intents that are under way: on the ladder, in a paused channel, without the User Service, handed off and not settled,
 * dead-lettered, unread.
 */
import { leaseKey } from '../../activities/intent/hand-off.ts';
import { routeWorkflowId } from '../../workflows/intent/contract.ts';
import type { Slot } from '../harness.ts';
import { eventually, operatorOf } from '../harness.ts';
import type { Held, OpenWork } from '../open-work.ts';
import { holdLocks } from '../open-work.ts';
import { GATEWAY, MAIL, deliveriesTo, nothingLeftRunning, outboundIds } from '../service-process.ts';
import { publishTurn, turn } from './entries.ts';

const PUSH = 'push:user:user-1';
const EMAIL = 'email:user:user-1';
const LIMIT_MS = 90_000;

export function openIntentWork(slot: Slot): OpenWork {
  const operator = operatorOf(slot);
  const ids = { dead: '', climbing: '', unsettled: '', paused: '', unresolved: '', unread: '' };
  let settling: Held | undefined;
  let attemptsBefore = 0;

  const routeOf = async (id: string, route: string) => {
    const { rows } = await slot.db.query<{ status: string; attempt_count: number }>(
      'SELECT status, attempt_count FROM notification.routes WHERE notification_id = $1 AND route_id = $2',
      [id, route],
    );
    return rows[0];
  };
  const inStatus = (id: string, route: string, status: string) =>
    eventually(
      `${route} of ${id} to be ${status}`,
      async () => (await routeOf(id, route))?.status === status,
      LIMIT_MS,
    );

  return {
    role: 'intent',
    env: {
      // An e-mail that fails is dead; a push that fails is tried for as long as the test may take.
      NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: '1',
      NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS: '1000',
      NOTIFICATION_ROUTE_BACKOFF_MIN: '1s',
      NOTIFICATION_ROUTE_BACKOFF_MAX: '2s',
    },

    async begin() {
      // Streams that take no entries, as Redis itself refuses them: their keys hold something else.
      await slot.redis.mset(GATEWAY, 'not a stream', MAIL, 'not a stream');
      ids.dead = await publishTurn(slot.redis, 'dead');
      await inStatus(ids.dead, EMAIL, 'dead_letter');
      await slot.redis.del(MAIL);

      ids.climbing = await publishTurn(slot.redis, 'climbing');
      await inStatus(ids.climbing, EMAIL, 'published');
      await inStatus(ids.climbing, PUSH, 'failed');

      // A lease keeps the e-mail back until no process can settle it.
      const [seconds] = await slot.redis.time();
      ids.unsettled = `${(Number(seconds) + 60) * 1_000}-0`;
      const lease = leaseKey(ids.unsettled, EMAIL);
      await slot.redis.set(lease, 'another worker', 'PX', LIMIT_MS);
      const fields = turn({ idempotency_key: 'unsettled', recipient_user_ids_json: '["user-1"]' });
      await slot.redis.xadd('notification:intents', ids.unsettled, ...fields.flat());
      await inStatus(ids.unsettled, EMAIL, 'pending');
      settling = await holdLocks(
        slot,
        `SELECT 1 FROM notification.routes
          WHERE notification_id = '${ids.unsettled}' AND route_id = '${EMAIL}' FOR UPDATE`,
      );
      await slot.redis.del(lease);
      await eventually('the e-mail to be handed off', async () => (await slot.redis.xlen(MAIL)) === 2);

      await operator.channels.pause('email', { requestedBy: 'test', reason: 'maintenance' });
      ids.paused = await publishTurn(slot.redis, 'paused');
      slot.userService.fail({ userId: 'user-9', failure: { kind: 'status', status: 503 } });
      ids.unresolved = await publishTurn(slot.redis, 'unresolved', ['user-9']);
      await eventually('the e-mail to wait for its channel', async () => {
        const route = slot.client.workflow.getHandle(routeWorkflowId(ids.paused, EMAIL));
        const { currentDetails } = await route.query<{ currentDetails?: string }>(
          '__temporal_workflow_metadata',
        );
        return currentDetails?.startsWith('Paused');
      });
      await eventually('the User Service to be asked', async () =>
        slot.userService.requests.some(({ userId }) => userId === 'user-9'),
      );
    },

    async stopped() {
      expect((await routeOf(ids.unsettled, EMAIL))!.status).toBe('pending');
      await settling?.release();
      attemptsBefore = (await routeOf(ids.climbing, PUSH))!.attempt_count;
      ids.unread = await publishTurn(slot.redis, 'unread');
    },

    async heal() {
      await eventually(
        'the ladder to go on',
        async () => (await routeOf(ids.climbing, PUSH))!.attempt_count > attemptsBefore,
        LIMIT_MS,
      );
      await slot.redis.del(GATEWAY);
      slot.userService.heal();
      await operator.channels.resume('email', { requestedBy: 'test' });
    },

    async finish() {
      await inStatus(ids.dead, PUSH, 'published');
      const { replayed } = await operator.replays.route(ids.dead, EMAIL, { requestedBy: 'test' });
      expect(replayed.result).toBe('replayed');

      const { unresolved, ...others } = ids;
      const expected = [
        ...deliveriesTo('user-1', Object.values(others)),
        ...deliveriesTo('user-9', [unresolved]),
      ].sort();
      await eventually(
        'every route to be handed off',
        async () => {
          const handedOff = await outboundIds(slot.redis);
          if (handedOff.length >= expected.length) return true;
          throw new Error(`these are: ${handedOff.join(', ')}`);
        },
        LIMIT_MS,
      );
      await nothingLeftRunning(slot, LIMIT_MS);
      expect(await outboundIds(slot.redis)).toEqual(expected);
      const { rows } = await slot.db.query(
        "SELECT notification_id, route_id, status FROM notification.routes WHERE status <> 'published'",
      );
      expect(rows).toEqual([]);
      const channels = await eventually('both channels to be open', async () => {
        const views = await operator.channels.list();
        return views.every(({ status, isWorkflowSilent }) => status === 'open' && !isWorkflowSilent) && views;
      });
      expect(channels).toHaveLength(2);
    },

    release: async () => settling?.release(),
  };
}
