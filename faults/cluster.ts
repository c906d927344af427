/** A cluster of Temporal as one of the servers of a run: killed as a whole, or one process of it at a time. */
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import type { TemporalClusterOptions } from '../dev/servers/temporal-cluster.ts';
import { startTemporalCluster } from '../dev/servers/temporal-cluster.ts';
import type { Instance } from './instances.ts';

/** @param dataDir has a folder for it. */
export async function startClusterInstance(
  dataDir: string,
  options: Omit<TemporalClusterOptions, 'dataDir' | 'port'>,
): Promise<Instance> {
  const folder = path.join(dataDir, 'temporal');
  mkdirSync(folder, { recursive: true });
  const cluster = await startTemporalCluster({ ...options, dataDir: folder, port: 0, mayDie: true });
  const { members, dsn, untilUsable, logs, stop } = cluster;
  const everyone = [...members.values()];
  return {
    port: Number(cluster.address.split(':')[1]),
    folder,
    members,
    store: dsn,
    isRunning: () => everyone.every((member) => member.isRunning()),
    async kill() {
      await Promise.all(everyone.map((member) => member.kill()));
    },
    async start() {
      await members.get('store')!.start();
      await Promise.all(everyone.map((member) => member.start()));
      await untilUsable();
    },
    stop,
    logs,
  };
}
