/** Scenario 10 of the lifecycle: whether a notification router works, tried without a device. */
import { createNotificationRouters } from '../../activities/subscription/router/routers.ts';
import type { NotificationRouter } from '../../activities/subscription/router/routers.ts';
import { diagnose } from '../../cli/checks.ts';
import { routerChecks, selfTest } from '../../cli/subscription/check.ts';
import { startMessagingRouter } from '../../dev/stand-ins/subscription/messaging-router.ts';
import type { NotificationRouterStandIn } from '../../dev/stand-ins/subscription/notification-router.ts';
import type { Routers } from './routers.ts';
import { startRouters } from './routers.ts';

describe('the self-test of a notification router', () => {
  let router: NotificationRouter;
  let routers: Routers;
  let first: NotificationRouterStandIn;

  beforeAll(() => {
    router = createNotificationRouters();
  });
  beforeEach(async () => {
    routers = await startRouters({ smp: 0 });
    first = routers.ntf[0]!;
  });
  afterEach(() => routers.stop());
  afterAll(() => router.close());

  test(`N17 scenario 10: it makes a token without a device and deletes it`, async () => {
    const before = first.tokens().length;

    expect(await selfTest(router, first.address)).toBeUndefined();
    expect(first.tokens().length).toBe(before);
    expect(first.calls.slice(-3).map(({ op }) => op)).toEqual(['PING', 'TNEW', 'TDEL']);
  });

  test(`N17 scenario 10: another certificate is found out immediately`, async () => {
    const other = await startMessagingRouter();
    const address = { ...first.address, keyHash: other.address.keyHash };
    await other.stop();
    const calls = first.calls.length;

    expect(await selfTest(router, address)).toEqual({
      step: 'connect',
      error: { source: 'BROKER', code: 'NETWORK', detail: 'unknown CA' },
    });
    expect(first.calls.length).toBe(calls);
  });

  test.each([
    ['TNEW', 'create'],
    ['TDEL', 'delete'],
  ])(`N17 scenario 10: a router that fails at %s is found out at the step %s`, async (subject, step) => {
    first.fail({ failure: { kind: 'error', code: 'INTERNAL' }, subject });

    expect(await selfTest(router, first.address)).toEqual({
      step,
      error: { source: 'NTF', code: 'INTERNAL' },
    });
  });

  test(`N16 N17 scenario 10: doctor names each router that does not work, and the step`, async () => {
    const other = await startMessagingRouter();
    const unknown = { ...first.address, keyHash: other.address.keyHash };
    await other.stop();
    const name = 'notification routers';

    expect(await diagnose([routerChecks([first.address])])).toEqual([
      { name, status: 'ok', detail: '1 router: a token can be made and deleted' },
    ]);
    first.fail({ failure: { kind: 'error', code: 'INTERNAL' }, subject: 'TNEW' });
    expect(await diagnose([routerChecks([first.address, unknown])])).toEqual([
      {
        name,
        status: 'error',
        detail:
          `2 of 2 routers failed: 127.0.0.1:${first.address.port}: create, NTF INTERNAL; ` +
          `127.0.0.1:${first.address.port}: connect, BROKER NETWORK, unknown CA`,
        hint: expect.stringContaining('subscriptions status'),
      },
    ]);
    first.heal();
    expect(await diagnose([routerChecks([first.address, unknown])])).toMatchObject([
      { name, status: 'warn' },
    ]);
  });
});
