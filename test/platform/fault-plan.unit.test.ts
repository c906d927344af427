/** The plan of the fault suite: the seed alone decides, and what was asked for happens. */
import type { Fault } from '../../faults/fault-kinds.ts';
import { LOSSES, subjectsOf } from '../../faults/fault-kinds.ts';
import { commandOf, parseOptions } from '../../faults/options.ts';
import type { PlanOptions } from '../../faults/plan.ts';
import { planFaults } from '../../faults/plan.ts';
import { randomOf } from '../../faults/random.ts';

const OPTIONS: PlanOptions = {
  services: 2,
  count: 60,
  withinMs: 300_000,
  losses: LOSSES,
  kinds: undefined,
  isEncrypted: true,
  members: ['frontend-1', 'history-1', 'store'],
};
const planOf = (seed: string, more: Partial<PlanOptions> = {}): Fault[] =>
  planFaults(randomOf(seed, 'faults'), { ...OPTIONS, ...more });

test('a seed gives the same plan again, and another one gives another', () => {
  expect(planOf('1')).toEqual(planOf('1'));
  expect(planOf('1')).not.toEqual(planOf('2'));
});

test('two faults do not hit one subject together', () => {
  const until = new Map<string, number>();
  for (const fault of planOf('1')) {
    for (const subject of subjectsOf(fault, 2)) {
      expect(fault.atMs).toBeGreaterThanOrEqual(until.get(subject) ?? 0);
      until.set(subject, fault.atMs + fault.forMs);
    }
  }
});

test('the command that repeats a run has all that decides it', () => {
  const args = [
    '--seed',
    's',
    '--losses',
    'failover,redis',
    '--kinds',
    'clock,cut',
    '--mode',
    'direct',
    '--plain',
  ];
  const { seed, ...options } = parseOptions(args);
  const [, again] = commandOf({ seed, ...options }).split(' -- ');
  expect(parseOptions(['--seed', seed, ...again!.split(' ')])).toEqual({ seed, ...options });
  expect(parseOptions(['--losses', 'all']).losses).toEqual(LOSSES);
  const cell = [
    '--cluster',
    '--temporal',
    '1.29.1',
    '--postgres',
    '/opt/bin',
    '--redis',
    '/opt/valkey-server',
  ];
  expect(commandOf(parseOptions(cell))).toContain(cell.join(' '));
  expect(() => parseOptions(['--temporal', '1.29.1'])).toThrow('add --cluster');
  expect(() => parseOptions(['--kinds', 'earthquake'])).toThrow('--kinds does not know earthquake');
});
