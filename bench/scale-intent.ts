/** One intent for 10,000 UUIDs while the User Service fails now and then: how long until it is accepted. */
import { randomBytes, randomUUID } from 'node:crypto';
import { startUserService } from '../dev/stand-ins/intent/user-service.ts';
import { newGameTurnReady, publishIntent } from '../client/notificationintent.ts';
import type { Bench } from './environment.ts';
import { appendedAtMs } from './environment.ts';
import { ROUTES_PER_RECIPIENT, routesSettled } from './intent.ts';
import type { Finding, Measurement } from './measurement.ts';
import { until } from './rounds.ts';

const RECIPIENTS = 10_000;
/** One lookup in a thousand answers 503. */
const FAILS_EVERY = 1_000;
const LONGEST_ACCEPTANCE_S = 60;
const LOOK_INTERVAL_MS = 50;
const PART = 'on_failure';
const ROW = 'scale.uuid-recipients';

export const scaleIntent: Measurement = {
  name: ROW,
  meaning: `one intent for ${RECIPIENTS} UUIDs, encrypted, while one lookup in ${FAILS_EVERY} fails`,
  isQuick: false,
  rows: [
    {
      name: `${ROW}.accepted`,
      unit: 's',
      target: { atMost: LONGEST_ACCEPTANCE_S },
      meaning: 'from XADD to the record and all its routes',
    },
    {
      name: `${ROW}.published`,
      unit: '',
      target: { atLeast: RECIPIENTS * ROUTES_PER_RECIPIENT },
      meaning: 'routes that were published',
    },
    { name: `${ROW}.lookups`, unit: '', meaning: 'requests to the User Service, repeats included' },
  ],
  run: measure,
};

async function measure(bench: Bench): Promise<Finding[]> {
  const part = await bench.part(PART);
  const recipientUserIds = Array.from({ length: RECIPIENTS }, () => randomUUID());
  const user = { email: 'someone@example.com', preferredLanguage: 'en' };
  const userService = await startUserService({
    users: Object.fromEntries(recipientUserIds.map((id) => [id, user])),
  });
  userService.fail({ failure: { kind: 'status', status: 503 }, every: FAILS_EVERY });
  try {
    // Not the service of other measurements: it asks another User Service, and encrypts.
    await bench.stopService(PART);
    await bench.service(PART, {
      NOTIFICATION_ROUTE_DISPATCH: PART,
      NOTIFICATION_USER_SERVICE_BASE_URL: userService.url,
      NOTIFICATION_PAYLOAD_KEYS: `bench:${randomBytes(32).toString('base64')}`,
    });
    bench.report(`${RECIPIENTS} recipients, one lookup in ${FAILS_EVERY} fails`);
    const id = await publishIntent(
      part.redis,
      newGameTurnReady({
        idempotencyKey: randomUUID(),
        occurredAt: Date.now(),
        recipientUserIds,
        payload: { game_id: 'game-7', game_name: 'Andromeda', turn_number: 54 },
      }),
    );
    await until('the record', LOOK_INTERVAL_MS, async () => {
      const { rowCount } = await part.db.query(
        'SELECT FROM notification.records WHERE notification_id = $1',
        [id],
      );
      return rowCount === 1;
    });
    const acceptedMs = Date.now() - appendedAtMs(id);
    const routes = RECIPIENTS * ROUTES_PER_RECIPIENT;
    await routesSettled(part, [id], routes);
    return [
      { row: `${ROW}.accepted`, value: acceptedMs / 1_000 },
      { row: `${ROW}.published`, value: routes },
      { row: `${ROW}.lookups`, value: userService.requests.length },
    ];
  } finally {
    await bench.stopService(PART);
    await userService.stop();
  }
}
