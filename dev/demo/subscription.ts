/** The demo's part about subscriptions: a device that is registered, a queue that is imported, and a message that reaches the device. */
import { randomBytes } from 'node:crypto';
import type { Operator } from '../../client/operator.ts';
import { waitUntil } from '../../client/temporal.ts';
import { importNewQueues } from '../stand-ins/subscription/queues.ts';
import type { RouterStack } from '../stand-ins/subscription/routers.ts';

/** Far more than stand-ins need; a demo must end. */
const LIMIT_MS = 60_000;
const USER_ID = 1;

interface SubscriptionResult {
  connId?: string;
  status?: string;
  isComplete: boolean;
  afterMs: number;
  problem?: string;
}

export async function subscribe(
  { tokens, subscriptions }: Operator,
  routers: RouterStack,
): Promise<SubscriptionResult> {
  const startedAt = Date.now();
  const since = () => Date.now() - startedAt;
  try {
    const device = { provider: 'AT' as const, token: randomBytes(16).toString('hex') };
    const pushed = (kind: string) =>
      waitUntil(
        async () =>
          routers.pushSink.pushes.find((push) => push.token === device.token && push.kind === kind)?.data,
        { limitMs: LIMIT_MS, everyMs: 20 },
      );

    await tokens.register(device, 'INSTANT');
    const { nonce = '', verification: code = '' } = (await pushed('verification')) ?? {};
    await tokens.verify(device, { nonce, code });
    const server = routers.messagingRouters[0]!;
    const [connId = ''] = await importNewQueues(subscriptions, [{ userId: USER_ID, server }]);
    let status: string | undefined;
    const created = await waitUntil(
      async () => {
        ({ status } = await subscriptions.show(connId));
        return status?.startsWith('CREATED') || undefined;
      },
      { limitMs: LIMIT_MS, everyMs: 20 },
    );
    const isComplete = created !== undefined;
    return { connId, ...(status === undefined ? {} : { status }), isComplete, afterMs: since() };
  } catch (error) {
    return { isComplete: false, afterMs: since(), problem: (error as Error).message };
  }
}

export function verdictOnSubscriptions({ connId, status, afterMs, problem }: SubscriptionResult): string {
  if (problem !== undefined) return `Subscriptions: ${problem}`;
  return `Subscriptions: a device was registered and verified, and connection ${connId} is ${status ?? 'not subscribed'} after ${afterMs} ms.`;
}
