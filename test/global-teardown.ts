import { rmSync } from 'node:fs';
import { Redis } from 'ioredis';
import { refusalsOf } from './redis-users.ts';

export default async function globalTeardown(): Promise<void> {
  if (!globalThis.stackOfThisRun) return;
  const { stack, dataDir, pooler } = globalThis.stackOfThisRun;
  const [host = '', port] = stack.redisAddr!.split(':');
  const redis = new Redis({ host, port: Number(port) });
  const refused = await refusalsOf(redis).finally(() => redis.disconnect());
  await pooler?.stop();
  await stack.stop();
  rmSync(dataDir, { recursive: true, force: true });
  if (refused.length > 0) {
    throw new Error(
      `deploy/redis/users.acl lacks what services needed in these tests:\n${refused.join('\n')}`,
    );
  }
}
