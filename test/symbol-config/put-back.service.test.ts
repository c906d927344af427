/** A PostgreSQL that was put back to a moment ago: targets end with what the rows say, under a version that none has seen. */
import type { SymbolConfigState } from '../../workflows/symbol-config/contract.ts';
import { eventually } from '../harness.ts';
import { keepRows } from '../put-back.ts';
import { namesIn, registryOfTests } from './registry.ts';

const LIMIT_MS = 60_000;
const BEAT = `notification:stream_beats:symbol-config:${Buffer.from('symbol-config/main').toString('base64url')}`;

const registry = registryOfTests();
beforeAll(async () => {
  // Nothing happens by itself but what this test is about.
  await registry.startService({ NOTIFICATION_SYMBOL_RETRY_LADDER: '24h' });
  await registry.settled(LIMIT_MS);
});

const lookedAgain = async () => {
  const before = await registry.slot.redis.get(BEAT);
  await eventually('a look more', async () => (await registry.slot.redis.get(BEAT)) !== before);
};

async function change(symbol: string): Promise<SymbolConfigState> {
  await registry.write([symbol]);
  await registry.tell();
  return registry.settled(LIMIT_MS);
}

const namesAt = (target: string) => namesIn(registry.targets.held(target).symbols);

test('S5 I52 a PostgreSQL that is put back: no target stays on a list that the rows do not know', async () => {
  await change('KEPT');
  await lookedAgain();
  const { putBack } = await keepRows(registry.slot.db);
  const { version: lost } = await change('UNDONE');
  await lookedAgain();
  await putBack();

  const { version } = await eventually(
    'the list of the rows at all targets',
    async () => {
      const state = await registry.settled(LIMIT_MS);
      return !namesAt('us-east-alert-1').includes('UNDONE') && state;
    },
    LIMIT_MS,
  );
  expect(version).toBeGreaterThan(lost);
  for (const { name } of registry.targets.targets) {
    expect(namesAt(name)).toContain('KEPT');
    expect(namesAt(name)).not.toContain('UNDONE');
  }
  await eventually('the rows to say so', async () =>
    (await registry.rows()).every((row) => row.acknowledged_version === version),
  );
  expect(registry.slot.logs).toContainEqual(
    expect.objectContaining({
      msg: 'PostgreSQL fell back to an earlier state, its symbols are pushed to all targets',
    }),
  );
});
