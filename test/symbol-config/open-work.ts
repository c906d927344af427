/** Symbol configuration that is under way: a change that one target refuses, whose ladder is open. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Slot } from '../harness.ts';
import { eventually } from '../harness.ts';
import type { OpenWork } from '../open-work.ts';
import { takeSymbolRegistry } from './registry.ts';

const REFUSING = 'ap-south-alert-3';
const LIMIT_MS = 60_000;

/** @param dir for files that the service reads. */
export async function openSymbolWork(slot: Slot, dir: string): Promise<OpenWork> {
  const registry = await takeSymbolRegistry(slot, { acceptsUnsigned: true });
  const { targets } = registry;
  const file = path.join(dir, 'targets.json');
  writeFileSync(file, JSON.stringify(targets.targets));
  let version = 0;

  return {
    role: 'symbol-config',
    env: {
      NOTIFICATION_SYMBOL_TARGETS_FILE: file,
      NOTIFICATION_SYMBOL_RETRY_LADDER: '1s',
      // A target that is slow on a busy machine would be pushed to twice.
      NOTIFICATION_HTTP_TIMEOUT: '1m',
    },

    async begin() {
      await registry.write(['BTC', 'ETH']);
      await registry.tell();
      ({ version } = await registry.settled(LIMIT_MS));
      targets.fail({ target: REFUSING, failure: { kind: 'status', status: 503 } });
      await registry.write(['SOL']);
      await registry.tell();
      await eventually('the ladder of the target that refuses', async () => {
        const refusing = (await registry.rows()).find(({ target }) => target === REFUSING);
        return refusing!.consecutive_failures > 1;
      });
    },

    heal: async () => targets.heal(),

    async finish() {
      const state = await registry.settled(LIMIT_MS);
      expect(state).toMatchObject({ version: version + 1, failedTargets: [] });
      const acknowledged = (await registry.rows()).map((row) => row.acknowledged_version);
      expect(acknowledged).toEqual(targets.targets.map(() => state.version));
      // Those that had it already were left alone.
      const pushed = targets.pushes
        .filter((push) => push.version === state.version && push.target !== REFUSING)
        .map(({ target }) => target);
      const others = targets.targets.map(({ name }) => name).filter((name) => name !== REFUSING);
      expect(pushed.sort()).toEqual(others.sort());
    },

    release: () => registry.release(),
  };
}
