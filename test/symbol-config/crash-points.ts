/** Symbol configuration, and a process that dies after each step with which it changes something outside. */
import { crashWalksOfEachTest } from '../crash-walk.ts';
import { eventually } from '../harness.ts';
import { namesIn, registryOfTests } from './registry.ts';
import { scratchFolder } from '../scratch.ts';

const registry = registryOfTests();
const beginWalk = crashWalksOfEachTest(() => registry.slot);
const scratch = scratchFolder('crash-symbols');

test('S1 S5 a process that dies after any step of a change: every target has the newest symbols', async () => {
  // A collector and an alert: each is a push and a row.
  const targets = registry.targets.targets.slice(0, 2);
  const targetsFile = scratch.write('targets.json', JSON.stringify(targets));
  const walk = beginWalk({
    NOTIFICATION_ROLES: 'symbol-config',
    NOTIFICATION_SYMBOL_TARGETS_FILE: targetsFile,
    NOTIFICATION_SYMBOL_RETRY_LADDER: '200ms,400ms,1s',
  });
  await walk.survivor();
  const symbols: string[] = [];
  const isHeld = (symbol: string) =>
    targets.every(({ name }) => namesIn(registry.targets.held(name).symbols).includes(symbol));
  const put = async () => {
    const symbol = `SYM${symbols.length}`;
    symbols.push(symbol);
    await registry.write([symbol]);
    // The test does not wait for an answer of a process that is to die.
    registry.tell().catch(() => undefined);
    return async () => {
      const rows = await registry.rows();
      return (
        isHeld(symbol) &&
        rows.every(
          ({ target, acknowledged_version: version }) => version === registry.targets.held(target).version,
        )
      );
    };
  };
  const kills = {
    taken: await walk.through('takeSymbolSnapshot', put, 3),
    pushed: await walk.through('pushSymbols', put, 8),
  };
  console.info(`processes that died: ${JSON.stringify(kills)}`);
  expect(kills.taken).toBeGreaterThanOrEqual(1);
  // The last row may be seen before the process that wrote it is dead.
  expect(kills.pushed).toBeGreaterThanOrEqual(3);

  await walk.survivor();
  // One change may have been made while no process could be told.
  await registry.tell();
  await eventually(
    'every target to have every symbol',
    async () => {
      const { version } = await registry.status();
      const held = targets.map(({ name }) => registry.targets.held(name));
      return held.every((one) => one.version === version) && symbols.every(isHeld);
    },
    120_000,
  );
}, 600_000);
