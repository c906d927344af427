/** Stores that were put back to a moment ago: targets end with what the rows say, under a version that none has seen. */
import type { SymbolConfigState } from '../../workflows/symbol-config/contract.ts';
import type { Service } from '../../workers/service.ts';
import { eventually, slotOfEachTest } from '../harness.ts';
import { keepRows } from '../put-back.ts';
import { namespaceOf } from '../slots.ts';
import { namesIn, registryOfTests } from './registry.ts';

const LIMIT_MS = 60_000;
/** Nothing happens by itself but what these tests are about. */
const LATER = {
  NOTIFICATION_SYMBOL_RETRY_LADDER: '24h',
};
const BEAT = `notification:stream_beats:symbol-config:${Buffer.from('symbol-config/main').toString('base64url')}`;

const registry = registryOfTests();
let service: Service;
beforeAll(async () => {
  service = await registry.startService(LATER);
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

/** Every target has this list, and its row says under which version. */
async function expectEverywhere(names: { has: string; not: string }): Promise<number> {
  const { version } = await eventually(
    'the list of the rows at all targets',
    async () => {
      const state = await registry.settled(LIMIT_MS);
      return !namesAt('us-east-alert-1').includes(names.not) && state;
    },
    LIMIT_MS,
  );
  for (const { name } of registry.targets.targets) {
    expect(namesAt(name)).toContain(names.has);
    expect(namesAt(name)).not.toContain(names.not);
  }
  await eventually('the rows to say so', async () =>
    (await registry.rows()).every((row) => row.acknowledged_version === version),
  );
  return version;
}

test('S5 I52 a PostgreSQL that is put back: no target stays on a list that the rows do not know', async () => {
  await change('KEPT');
  await lookedAgain();
  const { putBack } = await keepRows(registry.slot.db);
  const { version: lost } = await change('UNDONE');
  await lookedAgain();
  await putBack();

  expect(await expectEverywhere({ has: 'KEPT', not: 'UNDONE' })).toBeGreaterThan(lost);
  expect(registry.slot.logs).toContainEqual(
    expect.objectContaining({
      msg: 'PostgreSQL fell back to an earlier state, its symbols are pushed to all targets',
    }),
  );
});

describe('a Temporal that knows less than the rows', () => {
  const empty = slotOfEachTest();

  test('S5 I49 emptied: the list goes to all targets again, also one without a signal', async () => {
    await change('TOLD');
    await service.stop();
    await registry.write(['UNTOLD']);
    await registry.startService({ ...LATER, TEMPORAL_NAMESPACE: namespaceOf(empty.slot) });
    await eventually(
      'all targets to have both',
      async () =>
        registry.targets.targets.every(({ name }) =>
          ['TOLD', 'UNTOLD'].every((symbol) => namesAt(name).includes(symbol)),
        ),
      LIMIT_MS,
    );
  });
});
