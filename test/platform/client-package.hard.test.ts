/** The client package, as another project gets it: packed, unpacked, used from JavaScript and checked from TypeScript. */
import { execFile, spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import { namespaceOf } from '../slots.ts';

const run = promisify(execFile);
const ROOT = path.join(import.meta.dirname, '../..');

interface Manifest {
  version: string;
  exports: Record<string, { types: string; default: string } | string>;
  dependencies: Record<string, string>;
}

const bothOf = (entry: Manifest['exports'][string]) =>
  typeof entry === 'string' ? { types: entry, default: entry } : entry;

let slot: Slot;
/** Somebody else's project. */
let project: string;
let unpacked: string;
let manifest: Manifest;

beforeAll(async () => {
  slot = await takeSlot();
  project = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-producer-'));
  const packed = await run(process.execPath, [path.join(ROOT, 'dev', 'pack-client.mjs'), project]);
  const modules = path.join(project, 'node_modules');
  unpacked = path.join(modules, 'galaxy-notify-client');
  mkdirSync(unpacked, { recursive: true });
  await run('tar', ['-xzf', packed.stdout.trim(), '--strip-components=1', '-C', unpacked]);
  manifest = JSON.parse(readFileSync(path.join(unpacked, 'package.json'), 'utf8')) as Manifest;
  // What npm would fetch for it, and nothing else.
  for (const name of [...Object.keys(manifest.dependencies), '@types/node']) {
    mkdirSync(path.dirname(path.join(modules, name)), { recursive: true });
    symlinkSync(path.join(ROOT, 'node_modules', name), path.join(modules, name));
  }
  writeFileSync(path.join(project, 'package.json'), JSON.stringify({ type: 'module' }));
  // The compiler takes most of it, on a machine that does other things too.
}, 180_000);
afterAll(async () => {
  rmSync(project, { recursive: true, force: true });
  await slot.release();
});

test('I37 the package has the version of the service, and everything that it names', () => {
  const { version } = JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8')) as Manifest;
  expect(manifest.version).toBe(version);
  expect(Object.keys(manifest.exports)).toEqual([
    '.',
    './outcomes',
    './testing',
    './outbox',
    './operator',
    './connect',
    './account-callback/inputs',
    './account-callback/receiver',
    './symbol-config/receiver',
    './outbox.sql',
  ]);
  for (const { types, default: code } of Object.values(manifest.exports).map(bothOf)) {
    expect([types, existsSync(path.join(unpacked, types))]).toEqual([types, true]);
    expect([code, existsSync(path.join(unpacked, code))]).toEqual([code, true]);
  }
  for (const file of ['README.md', 'LICENSE']) expect(existsSync(path.join(unpacked, file))).toBe(true);
  expect(existsSync(path.join(unpacked, 'dist', 'workers'))).toBe(false);
});

test('I37 an intent published from JavaScript with it is delivered', async () => {
  await slot.startService();
  const { host, port } = slot.endpoints.redis;
  const example = path.join(project, 'publish.mjs');
  cpSync(path.join(unpacked, 'examples', 'publish.mjs'), example);
  const { stdout } = await run(process.execPath, [
    ...[example, `redis://${host}:${port}/${slot.slot}`, 'user-1', 'from-the-package'],
  ]);
  expect(stdout).toMatch(/^\d+-\d+\n$/);
  await eventually('both routes to be published', async () => {
    const { rows } = await slot.db.query<{ published: number }>(
      "SELECT count(*)::int AS published FROM notification.routes WHERE notification_id = $1 AND status = 'published'",
      [stdout.trim()],
    );
    return rows[0]?.published === 2;
  });
});

test('I37 each part of it loads', async () => {
  const modules = Object.keys(manifest.exports).filter((name) => !name.endsWith('.sql'));
  const names = modules.map((name) => `galaxy-notify-client${name.slice(1)}`);
  const script = `for (const name of ${JSON.stringify(names)}) console.log(Object.keys(await import(name)).length > 0);`;
  writeFileSync(path.join(project, 'load.mjs'), script);
  const { stdout } = await run(process.execPath, [path.join(project, 'load.mjs')]);
  expect(stdout.trim().split('\n')).toEqual(names.map(() => 'true'));
});

test('I40 an operator that connects with it finds what was published, and ends', async () => {
  const { redis, postgresDsn, temporalAddress } = slot.endpoints;
  const servers = {
    postgresDsn,
    redis: { host: redis.host, port: redis.port, db: slot.slot },
    temporal: { address: temporalAddress },
    namespace: namespaceOf(slot.slot),
    payloadKeys: [{ id: 'one', key: Buffer.alloc(32, 1).toString('base64') }],
  };
  const script = `
    import { connectOperator } from 'galaxy-notify-client/connect';
    const servers = ${JSON.stringify(servers)};
    const payloadKeys = servers.payloadKeys.map(({ id, key }) => ({ id, key: Buffer.from(key, 'base64') }));
    const { operator, close } = connectOperator({ ...servers, payloadKeys });
    const { items } = await operator.notifications.list();
    const { live, liveUnavailable } = await operator.notifications.show(items[0].notificationId);
    console.log(items.map(({ idempotencyKey }) => idempotencyKey).join(), live?.status ?? liveUnavailable);
    await close();`;
  writeFileSync(path.join(project, 'operator.mjs'), script);
  // Its workflow ends a moment after its deliveries.
  await eventually('it to have ended', async () => {
    const { stdout } = await run(process.execPath, [path.join(project, 'operator.mjs')]);
    return stdout.trim() === 'from-the-package COMPLETED';
  });
});

test('I37 its types hold in a strict project, and refuse a wrong payload', () => {
  const check = (payload: string) => {
    writeFileSync(
      path.join(project, 'producer.ts'),
      `import { newGameTurnReady } from 'galaxy-notify-client';
       import { connectOperator } from 'galaxy-notify-client/connect';
       import { createOperator } from 'galaxy-notify-client/operator';
       export const create = createOperator;
       export const { operator } = connectOperator({ postgresDsn: 'postgres://db/notify', redis: { host: 'redis' } });
       newGameTurnReady({ idempotencyKey: 'k', occurredAt: 1790000000000, recipientUserIds: ['user-1'], payload: ${payload} });`,
    );
    const tsc = path.join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc');
    const options = '--strict --noEmit --skipLibCheck --module nodenext --target es2024 --types node'.split(
      ' ',
    );
    return spawnSync(process.execPath, [tsc, ...options, 'producer.ts'], { cwd: project, encoding: 'utf8' });
  };
  const right = check("{ game_id: 'g', game_name: 'G', turn_number: 1 }");
  expect([right.stdout, right.status]).toEqual(['', 0]);
  const wrong = check("{ game_id: 'g', game_name: 'G' }");
  expect(wrong.stdout).toContain('turn_number');
}, 180_000);
