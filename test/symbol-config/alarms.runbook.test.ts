/** Alarms about symbols, each with its fault, and its section of the runbook carried out. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { eventually } from '../harness.ts';
import { drillGround } from '../runbook/drill.ts';
import { registryOfTests } from './registry.ts';
import { scratchFolder } from '../scratch.ts';

const file = path.join(scratchFolder('alarms').dir, 'targets.json');

const ground = drillGround({
  env: () => ({
    NOTIFICATION_ROLES: 'symbol-config',
    NOTIFICATION_SYMBOL_TARGETS_FILE: file,
    // What waits long waits briefly; a quarter of an hour is as many seconds, as in the windows of the alarms.
    NOTIFICATION_SYMBOL_RETRY_LADDER: '1s',
    NOTIFICATION_RECONCILIATION_INTERVAL: '1s',
  }),
});
const { drill } = ground;

const registry = registryOfTests(ground.slot, { acceptsUnsigned: true });
beforeAll(async () => {
  writeFileSync(file, JSON.stringify(registry.targets.targets));
  await registry.write(['BTC', 'ETH']);
  await ground.start();
  await eventually('the workflow', () => registry.handle.describe());
  await registry.tell();
  await registry.settled();
}, 300_000);

const heal = async () => registry.targets.heal();

drill({
  alarm: 'SymbolListEmpty',
  fault: 'an operator disabled all symbols in the table',
  inject: async () => {
    await ground.slot.db.query('UPDATE notification.symbols SET is_enabled = false');
    await registry.tell();
  },
  examples: () => ({ LINK: 'BTC' }),
  says: { 'galaxy-notify symbols list': /BTC/ },
});

for (const [alarm, symbol] of [
  ['SymbolPushesFail', 'SOL'],
  ['SymbolTargetsStayBehind', 'DOT'],
] as const)
  drill({
    alarm,
    fault: 'targets answer 503',
    async inject() {
      registry.targets.fail({ failure: { kind: 'status', status: 503 } });
      await registry.write([symbol]);
      await registry.tell();
    },
    says: { 'galaxy-notify symbols status': /503/ },
    deeds: [{ words: 'fix it', act: heal, before: 'galaxy-notify symbols push' }],
    cleanUp: heal,
  });

drill({
  alarm: 'SymbolReconciliationStopped',
  fault: 'the crawler has a long interval',
  async inject() {
    await restart({ NOTIFICATION_SYMBOL_CRAWL_INTERVAL: '6h' });
    await registry.tell();
  },
  says: { 'galaxy-notify symbols status': /next push/ },
  deeds: [{ words: 'restart the processes', act: () => restart({}), before: 'galaxy-notify symbols push' }],
});

async function restart(env: Record<string, string>): Promise<void> {
  await ground.killAll();
  await ground.start(env);
}
