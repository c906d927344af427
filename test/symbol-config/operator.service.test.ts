/** What operators do with symbols: the client, and the command line. */
import { NotFoundError, NothingToDoError, OperationFailedError } from '../../client/errors.ts';
import type { Operator } from '../../client/operator.ts';
import { cliOfTests } from '../command-line.ts';
import { namespaceOf } from '../slots.ts';
import { eventually, operatorOf, untilLocked } from '../harness.ts';
import { registryOfTests } from './registry.ts';

const registry = registryOfTests();
const program = cliOfTests(() => registry.slot);
let operator: Operator;

beforeAll(async () => {
  const { slot } = registry;
  await registry.startService({ NOTIFICATION_SYMBOL_RETRY_LADDER: '1h' });
  await registry.settled();
  operator = operatorOf(slot, 'http://ui.test');
});
afterEach(() => registry.targets.heal());

const inTime = { limitMs: 60_000 };

const cli = (...args: string[]) => program.cli(['symbols', ...args]);
const json = async (...args: string[]) => (await program.json<object>(['symbols', ...args])).value;

describe('client', () => {
  test('S7 kinds-S7 a symbol is added, changed, and disabled, and who did it is kept', async () => {
    await operator.symbols.set({ symbol: 'LINK', ticker: 'LINK-PERP', decimals: 1, priceScale: 10_000 });
    const metadata = { symbol: 'LINK', ticker: 'LINK-PERP', decimals: 2, priceScale: 1_000_000_000_000 };
    const told = await operator.symbols.set(metadata, 'ann');
    await operator.symbols.wait(told, inTime);
    expect(registry.targets.held('us-east-collector').symbols).toContainEqual(metadata);
    const link = async () => (await operator.symbols.list()).find(({ symbol }) => symbol === 'LINK');
    const row = { ...metadata, isEnabled: true, updatedAt: expect.any(Date), changedBy: 'ann' };
    expect(await link()).toEqual(row);
    await expect(operator.symbols.set({ ...metadata, decimals: 31 })).rejects.toThrow(/^decimals: /);
    await operator.symbols.wait(await operator.symbols.disable(['LINK'], 'bob'), inTime);
    expect(await link()).toEqual({ ...row, isEnabled: false, changedBy: 'bob' });
  });

  test('S7 what makes no sense changes nothing', async () => {
    const before = await operator.symbols.list();
    await expect(operator.symbols.disable(['BTC', 'NOPE', 'NADA'])).rejects.toThrow(NotFoundError);
    await expect(operator.symbols.disable(['BTC', 'NOPE', 'NADA'])).rejects.toThrow('NADA, NOPE');
    await expect(operator.symbols.enable(['BTC'])).rejects.toThrow(NothingToDoError);
    const all = before.map(({ symbol }) => symbol);
    await expect(operator.symbols.disable(all)).rejects.toThrow(OperationFailedError);
    expect(await operator.symbols.list()).toEqual(before);
  });

  test('kinds-F11 of two who disable the last two symbols, one is refused', async () => {
    const enabledNow = async () => (await operator.symbols.list()).filter(({ isEnabled }) => isEnabled);
    const enabled = (await enabledNow()).map(({ symbol }) => symbol);
    const [first, ...others] = enabled as [string, ...string[]];
    const { db } = registry.slot;
    const other = await db.connect();
    const setEnabled = (isEnabled: boolean) =>
      other.query('UPDATE notification.symbols SET is_enabled = $2 WHERE symbol = ANY ($1)', [
        others,
        isEnabled,
      ]);
    await other.query('BEGIN');
    await setEnabled(false);
    const answer = Promise.allSettled([operator.symbols.disable([first])]);
    await untilLocked(db);
    await other.query('COMMIT');
    const [result] = await answer;
    await setEnabled(true);
    other.release();
    expect(result).toMatchObject({ status: 'rejected', reason: expect.any(OperationFailedError) });
    expect(await enabledNow()).toHaveLength(enabled.length);
  });
});

describe('command line', () => {
  test('S7 list, set, disable, enable and push, with their exit codes; the status says which target has what, and what failed', async () => {
    const arb = ['ARB', '--ticker', 'ARB-PERP', '--decimals', '1', '--price-scale', '100'];
    const set = await cli('set', ...arb, '--wait');
    expect(set.stdout).toMatch(/^version \d+: 77 of 77 targets acknowledged\n$/);
    expect((await cli('disable', 'ARB')).code).toBe(0);
    expect((await cli('list')).stdout).toMatch(/ARB +false +ARB-PERP +1 +100/);
    expect((await cli('disable', 'ARB')).code).toBe(3);
    expect((await cli('enable', 'NOPE')).code).toBe(3);
    expect((await cli('set', 'ARB', '--ticker', 'ARB')).code).toBe(2);
    expect(await json('enable', 'ARB', '--wait')).toMatchObject({ acknowledged: 77 });

    registry.targets.fail({ target: 'eu-west-alert-7', failure: { kind: 'status', status: 503 } });
    // One that the others have not all had within the time says that it is still under way.
    await eventually('a push that only one target has not', async () => {
      const { code, stderr } = await cli('push', '--wait', '--timeout', '5s');
      expect(code).toBe(1);
      return stderr === 'behind: eu-west-alert-7\n';
    });
    await eventually('an answer of the workflow, too', async () => {
      const behind = { target: 'eu-west-alert-7', kind: 'price_alert', geo: 'eu-west' };
      expect(await json('status', '--behind')).toMatchObject({
        targets: [{ ...behind, lastError: 'status 503: scripted failure' }],
        live: { failedTargets: ['eu-west-alert-7'], alarm: { purpose: expect.any(String) as string } },
        link: `http://ui.test/namespaces/${namespaceOf(registry.slot.slot)}/workflows/symbol-config%2Fmain`,
      });
      return true;
    });

    registry.targets.heal();
    await operator.symbols.wait(await operator.symbols.push(), inTime);
    expect((await cli('status', '--behind')).stdout).toBe('');
    const status = await cli('status');
    expect(status.code).toBe(0);
    expect(status.stdout.trim().split('\n')).toHaveLength(78);
    expect(status.stdout).toMatch(/ap-south-alert-10 +price_alert +ap-south +\d+ /);
    expect(status.stderr).toContain(': 0 targets behind');
    expect(status.stderr).toContain('next push ');
    expect(status.stderr).toContain('http://ui.test/');
  }, 400_000);
});
