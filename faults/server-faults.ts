/** Faults of the stores: they die, refuse to write, are full, or have forgotten something. */
import { mkdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { LOOPBACK } from '../dev/servers/ports.ts';
import { startTcpProxy } from '../dev/servers/tcp-proxy.ts';
import type { Fault, FaultKind } from './fault-kinds.ts';
import type { Span } from './targets.ts';
import type { Instance } from './instances.ts';
import type { Server, Servers } from './servers.ts';

/** For a replica to have all of its master, ms. */
const FOLLOW_LIMIT_MS = 30_000;

export async function spoilServer(
  fault: Extract<Fault, { server: unknown }>,
  servers: Servers,
): Promise<Span> {
  const startedAt = Date.now();
  const server = servers[fault.server];
  switch (fault.kind) {
    case 'kill-server':
      await server.now().kill();
      await sleep(fault.forMs);
      await server.now().start();
      break;
    case 'kill-member': {
      const member = server.now().members!.get(fault.member)!;
      await member.kill();
      await sleep(fault.forMs);
      await member.start();
      break;
    }
    case 'refuse-writes':
      await refuseWrites(server, fault.because, fault.forMs);
      break;
    case 'disk-full':
      server.disk?.fill();
      await sleep(fault.forMs);
      server.disk?.free();
      // It ends itself when its log cannot be written.
      await sleep(500);
      if (!server.now().isRunning()) await server.now().start();
      break;
    case 'failover':
      await failOver(server, fault.forMs);
      break;
    case 'put-back':
      await server.remember();
      await sleep(fault.forMs);
      await server.putBack('remembered');
      break;
    case 'namespace-lost':
      await server.putBack('nothing');
      break;
  }
  return [startedAt, Date.now()];
}

type Refusal = Extract<FaultKind, { kind: 'refuse-writes' }>['because'];

async function refuseWrites(server: Server, because: Refusal, forMs: number): Promise<void> {
  const folder = server.now().folder;
  // A snapshot cannot take the place of a folder. A snapshot that a replica has left is unused: Redis starts with its log.
  const obstacle = path.join(folder, 'dump.rdb');
  await commanding(server.now(), async (redis) => {
    if (because === 'OOM') await redis.config('SET', 'maxmemory', '1');
    else {
      rmSync(obstacle, { recursive: true, force: true });
      mkdirSync(obstacle);
      await redis.config('SET', 'save', '3600 1');
      // Not while the log is rewritten.
      await redis.bgsave('SCHEDULE');
    }
  });
  await sleep(forMs);
  await commanding(server.now(), async (redis) => {
    await redis.config('SET', 'maxmemory', '0');
    await redis.config('SET', 'save', '');
  });
  rmSync(obstacle, { recursive: true, force: true });
}

/**
 * A replica follows, lags behind for a while, and takes the place of its master, which dies. Then the other way round,
 * but with all that was written meanwhile.
 */
async function failOver(server: Server, lagMs: number): Promise<void> {
  const first = server.now();
  const replica = await server.another();
  const link = await startTcpProxy({ host: LOOPBACK, port: first.port });
  try {
    await follow(replica, link.port);
    await link.set({ kind: 'refuse' });
    link.cut();
    await sleep(lagMs);
    await first.kill();
    await promote(server, replica);
  } finally {
    await link.stop();
  }
  await first.start();
  await follow(first, replica.port);
  // Nothing is written from here on that the other one does not get.
  await commanding(replica, (redis) => redis.config('SET', 'min-replicas-to-write', '2'));
  await inStep(first, replica);
  await replica.kill();
  await promote(server, first);
}

async function promote(server: Server, instance: Instance): Promise<void> {
  await commanding(instance, (redis) => redis.replicaof('NO', 'ONE'));
  server.moveTo(instance);
}

async function follow(replica: Instance, port: number): Promise<void> {
  await commanding(replica, async (redis) => {
    await redis.replicaof(LOOPBACK, port);
    await waitFor('a replica to follow', async () =>
      (await redis.info('replication')).includes('master_link_status:up'),
    );
  });
}

async function inStep(replica: Instance, master: Instance): Promise<void> {
  const offsetOf = (redis: Redis, field: string) =>
    redis.info('replication').then((text) => new RegExp(`^${field}:(\\d+)`, 'm').exec(text)?.[1]);
  await commanding(replica, (slave) =>
    commanding(master, (redis) =>
      waitFor('a replica to have everything', async () => {
        const due = await offsetOf(redis, 'master_repl_offset');
        return (await offsetOf(slave, 'slave_repl_offset')) === due;
      }),
    ),
  );
}

async function waitFor(what: string, probe: () => Promise<boolean>): Promise<void> {
  for (const deadline = Date.now() + FOLLOW_LIMIT_MS; !(await probe());) {
    if (Date.now() > deadline) throw new Error(`waited ${FOLLOW_LIMIT_MS / 1_000} s for ${what}`);
    await sleep(50);
  }
}

async function commanding<T>({ port }: Instance, command: (redis: Redis) => Promise<T>): Promise<T> {
  const redis = new Redis({ host: LOOPBACK, port });
  redis.on('error', () => undefined);
  try {
    return await command(redis);
  } finally {
    redis.disconnect();
  }
}
