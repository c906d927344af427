/** Processes that cannot read bound payloads, beside those that can: an upgrade of encrypted work, and the way back. */
import { randomBytes } from 'node:crypto';
import { cliFor } from '../command-line.ts';
import type { Slot } from '../harness.ts';
import { eventually, operatorOf, takeSlot } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';
import { createFleet, deliveriesTo, outboundIds } from '../service-process.ts';
import type { UnpackedRelease } from './release.ts';
import { BEFORE_BINDING, unpackRelease } from './release.ts';

const KEY = { id: 'test', key: randomBytes(32) };
const KEYS = { NOTIFICATION_PAYLOAD_KEYS: `test:${KEY.key.toString('base64')}` };
const LIMIT_MS = 120_000;

let release: UnpackedRelease;
let slot: Slot;
let fleet: ReturnType<typeof createFleet>;
beforeAll(async () => {
  release = unpackRelease(BEFORE_BINDING);
  slot = await takeSlot({ isEmpty: true });
  fleet = createFleet(slot);
}, 300_000);
afterAll(async () => {
  await fleet?.killAll();
  await slot?.release();
  release?.remove();
});

test('security-15 encrypted work is upgraded while it runs, may go back, and is bound at last', async () => {
  const bench = cliFor(slot);
  const run = async (...args: string[]) => {
    const { code, stderr } = await bench.cli(args, { changes: KEYS });
    expect([args, code, stderr]).toEqual([args, 0, expect.anything()]);
  };
  const ids: string[] = [];
  const publish = async () => void ids.push(await publishTurn(slot.redis, `key-${ids.length}`));
  const arrived = (count: number) =>
    eventually(`${count} deliveries`, async () => (await outboundIds(slot.redis)).length === count, LIMIT_MS);

  let old = await fleet.start(KEYS, release.folder);
  await run('channels', 'pause', 'email', '--reason', 'upgrade');
  await publish();
  await arrived(1);
  // Side by side: either reads what the other wrote.
  const next = await fleet.start(KEYS);
  await publish();
  await arrived(2);
  await old.end('SIGTERM');
  await publish();
  await arrived(3);
  await next.end('SIGTERM');
  // And back: what the new one wrote goes on.
  old = await fleet.start(KEYS, release.folder);
  await run('channels', 'resume', 'email');
  await publish();
  await arrived(8);
  await old.end('SIGTERM');

  await fleet.start({ ...KEYS, NOTIFICATION_PAYLOAD_PLAIN: 'refuse' });
  await run('keys', 'renew', '--yes');
  await publish();
  await arrived(10);
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', ids));
  const { keys } = operatorOf(slot);
  await eventually(
    'all that runs to be bound',
    async () => {
      const { payload } = await keys.status({ payload: [KEY], subscription: [] });
      return payload.every(({ open, unbound }) => unbound === 0 && open >= 0);
    },
    LIMIT_MS,
  );
  bench.dispose();
}, 600_000);
