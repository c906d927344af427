/** What heals by itself: lost changes, lost versions, a crawler that is off again, targets that hang. */
import type { Service } from '../../workers/service.ts';
import type { CrawlerRequest, SymbolConfigState } from '../../workflows/symbol-config/contract.ts';
import { CONFIGURE_CRAWLER_UPDATE, MAX_CRAWL_INTERVAL_MS } from '../../workflows/symbol-config/contract.ts';
import { eventually } from '../harness.ts';
import type { SymbolRegistry } from './registry.ts';
import { namesIn, takeSymbolRegistry } from './registry.ts';

/** Of a wait, and three times that of a test, ms. */
const LIMIT_MS = 60_000;

let registry: SymbolRegistry;
let service: Service | undefined;
beforeAll(async () => {
  registry = await takeSymbolRegistry();
});
afterAll(() => registry.release());
afterEach(() => registry.targets.heal());

/** A service with these settings and a workflow without a past. */
async function begin(env: Record<string, string>): Promise<SymbolConfigState> {
  if (service) {
    await service.stop();
    await registry.handle.terminate('next test');
  }
  service = await registry.startService(env);
  return registry.settled(LIMIT_MS);
}

const configureCrawler = (request: CrawlerRequest) =>
  registry.handle.executeUpdate<SymbolConfigState, [CrawlerRequest]>(CONFIGURE_CRAWLER_UPDATE, {
    args: [request],
  });

const symbolsOf = (target: string) => namesIn(registry.targets.held(target).symbols);

/** Puts the database back to a backup of the time of a version; targets keep what they have. */
async function restore(version: number, disabled: string): Promise<void> {
  await registry.write([disabled], false);
  await registry.slot.db.query('DELETE FROM notification.symbol_snapshots WHERE version > $1', [version]);
  await registry.slot.db.query('UPDATE notification.symbol_targets SET acknowledged_version = $1', [version]);
}

async function change(symbol: string): Promise<SymbolConfigState> {
  await registry.write([symbol]);
  await registry.tell();
  return registry.settled(LIMIT_MS);
}

test(
  'kinds-V7 once the crawler is off, reconciliation goes on at its own interval',
  async () => {
    await begin({ NOTIFICATION_SYMBOL_RECONCILIATION_INTERVAL: '1s' });
    await configureCrawler({ enabled: true, intervalMs: MAX_CRAWL_INTERVAL_MS });
    await change('LINK');
    await configureCrawler({ enabled: false });
    await registry.targets.loseState('us-east-alert-1');
    await eventually(
      'the lost list to be back',
      async () => registry.targets.held('us-east-alert-1').source === 'push',
    );
  },
  3 * LIMIT_MS,
);

test(
  'kinds-S3 a change that nobody told of goes out before the next crawl',
  async () => {
    await begin({ NOTIFICATION_SYMBOL_RECONCILIATION_INTERVAL: '2s' });
    await configureCrawler({ enabled: true, intervalMs: MAX_CRAWL_INTERVAL_MS });
    await change('AVAX');
    const { pushes } = registry.targets;
    const before = pushes.length;
    await registry.write(['ARB']);
    await eventually('the change at the targets', async () => symbolsOf('us-east-alert-1').includes('ARB'));
    await registry.settled(LIMIT_MS);
    expect(pushes).toHaveLength(before + 77);
    expect(await registry.status()).toMatchObject({ crawler: { enabled: true } });

    // Also while the ladder of a target that never acknowledges is open.
    registry.targets.fail({ target: 'sa-east-alert-1', failure: { kind: 'status', status: 500 } });
    await registry.write(['OP']);
    await eventually('it at the others', async () => symbolsOf('us-east-alert-1').includes('OP'));
    await registry.write(['NEAR']);
    await eventually('the next one, too', async () => symbolsOf('us-east-alert-1').includes('NEAR'));
  },
  3 * LIMIT_MS,
);

test(
  'kinds-V8 after the restore of an older database all targets get the list again',
  async () => {
    const { version } = await begin({ NOTIFICATION_SYMBOL_RETRY_LADDER: '200ms' });
    for (const symbol of ['ONE', 'TWO', 'THREE']) await change(symbol);
    await service!.stop();
    await registry.handle.terminate('restored');
    service = undefined;
    await restore(version, 'THREE');

    service = await registry.startService({ NOTIFICATION_SYMBOL_RETRY_LADDER: '200ms' });
    const healed = await registry.settled(LIMIT_MS);
    expect(healed.version).toBeGreaterThan(version + 3);
    for (const { name } of registry.targets.targets) expect(symbolsOf(name)).not.toContain('THREE');
    expect(symbolsOf('us-east-collector')).toContain('TWO');
  },
  3 * LIMIT_MS,
);

test(
  'kinds-V8 a workflow that is older than the restored database goes on, also while its ladder is open',
  async () => {
    const { version } = await begin({ NOTIFICATION_SYMBOL_RETRY_LADDER: '500ms' });
    registry.targets.fail({ target: 'us-east-alert-1', failure: { kind: 'status', status: 500 } });
    await registry.write(['FOUR']);
    await registry.tell();
    await eventually('a failed round', async () => (await registry.status()).consecutiveFailures > 0);
    await restore(version, 'FOUR');
    await eventually(
      'a push of what the database has',
      async () => !symbolsOf('us-west-collector').includes('FOUR'),
    );
    registry.targets.heal();
    const healed = await registry.settled(LIMIT_MS);
    expect(healed.version).toBeGreaterThan(version + 1);
  },
  3 * LIMIT_MS,
);

test(
  'kinds-V10 an answer that does not end acknowledges by its status',
  async () => {
    // The answer is waited for as long.
    await begin({ NOTIFICATION_SYMBOL_PUSH_TIMEOUT: '20s', NOTIFICATION_SYMBOL_RETRY_LADDER: '1s' });
    const rowOf = async () => (await registry.rows()).find(({ target }) => target === 'eu-central-alert-2')!;
    // Of an error that is over, the row keeps the time.
    const { last_error_at } = await rowOf();
    registry.targets.fail({ target: 'eu-central-alert-2', failure: { kind: 'endless_answer' } });
    await registry.write(['UNI']);
    await registry.tell();
    const { version } = await registry.settled(LIMIT_MS);
    expect(await rowOf()).toMatchObject({
      ...{ acknowledged_version: version, consecutive_failures: 0 },
      last_error_at,
    });
  },
  3 * LIMIT_MS,
);

test(
  'kinds-S1 targets that hang in many rounds hold up no other target',
  async () => {
    await begin({ NOTIFICATION_SYMBOL_PUSH_TIMEOUT: '5m', NOTIFICATION_SHUTDOWN_TIMEOUT: '5s' });
    const { targets } = registry;
    const healthy = 'us-east-alert-1';
    for (const { name } of targets.targets)
      if (name !== healthy) targets.fail({ target: name, failure: { kind: 'hang' } });
    for (const symbol of ['A1', 'A2', 'A3', 'A4', 'A5']) {
      await registry.write([symbol]);
      await registry.tell();
      await eventually(`${symbol} where nothing hangs`, async () => symbolsOf(healthy).includes(symbol));
    }
  },
  3 * LIMIT_MS,
);
