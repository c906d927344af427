/** The probes of a service while it starts. */
import { freePort } from '../../dev/servers/ports.ts';
import { eventually, slotOfTests } from '../harness.ts';

const slot = slotOfTests();

test('I31 a start that waits for migrations says that it lives and is not ready', async () => {
  const address = `127.0.0.1:${await freePort()}`;
  const statusOf = async (probe: string) => (await fetch(`http://${address}/${probe}`)).status;
  const migrating = await slot.db.connect();
  try {
    await migrating.query('BEGIN; LOCK TABLE notification.schema_migrations');
    const starting = slot.startService({ NOTIFICATION_INTERNAL_HTTP_ADDR: address });
    // A start that fails is an error of the last line.
    starting.catch(() => undefined);
    await eventually('the probes', async () => (await statusOf('healthz')) === 200);
    expect(await statusOf('readyz')).toBe(503);
    await migrating.query('ROLLBACK');
    await starting;
  } finally {
    migrating.release(true);
  }
  expect(await statusOf('readyz')).toBe(200);
});
