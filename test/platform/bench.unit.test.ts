/** The benchmark's arithmetic, table and command line; what it measures is judged by running it. */
import { actionsOf } from '../../bench/actions.ts';
import type { Measurement } from '../../bench/measurement.ts';
import { parseOptions, select } from '../../bench/options.ts';
import { selfTimes } from '../../bench/profile.ts';
import { rowsOf, tableOfRows } from '../../bench/report.ts';
import { drainRatio, meanInFifth, median, quantile, ratios } from '../../bench/statistics.ts';
import { shapesFor } from '../../bench/throughput.ts';

test('quantiles are values that occurred', () => {
  const values = [5, 1, 4, 2, 3];
  expect([0, 0.2, 0.5, 0.99, 1].map((share) => quantile(values, share))).toEqual([1, 1, 3, 5, 5]);
  expect(median([4, 1])).toBe(1);
  expect(values).toEqual([5, 1, 4, 2, 3]);
  expect(() => median([])).toThrow(RangeError);
});

test('ratios are taken within each round', () => {
  expect(ratios([10, 30], [20, 15])).toEqual([0.5, 2]);
});

describe('the drain of a backlog', () => {
  const steady = [0, 20, 40, 60, 80, 100].map((done) => ({ ms: done * 10, done, mb: done }));

  test('compares the last fifth with the second, between samples if need be', () => {
    expect(drainRatio(steady, 100)).toBe(1);
    const slowAtTheEnd = [
      { ms: 0, done: 0 },
      { ms: 400, done: 80 },
      { ms: 600, done: 100 },
    ];
    expect(drainRatio(slowAtTheEnd, 100)).toBeCloseTo(0.5);
    expect(() => drainRatio(steady.slice(0, -1), 100)).toThrow(RangeError);
  });

  test('averages what was sampled within a fifth', () => {
    expect(meanInFifth(steady, 100, 2, ({ mb }) => mb)).toBe(30);
    const sparse = steady.filter(({ done }) => done !== 20 && done !== 40);
    expect(meanInFifth(sparse, 100, 2, ({ mb }) => mb)).toBe(60);
  });
});

const measurement: Measurement = {
  name: 'latency',
  meaning: '',
  isQuick: true,
  rows: [
    { name: 'latency.p50', unit: 'ms', meaning: 'half of them', target: { atMost: 4 } },
    { name: 'latency.rate', unit: '/s', meaning: 'a second', target: { atLeast: 2 } },
    { name: 'latency.cpu', unit: 'ms', meaning: 'not to be had here', target: { atMost: 1 } },
  ],
  run: async () => [],
};
const slow: Measurement = {
  ...measurement,
  isQuick: false,
  rows: [{ name: 'slow', unit: '', meaning: '' }],
};

describe('rows', () => {
  const rows = rowsOf(measurement, [
    { row: 'latency.p50', value: 4 },
    { row: 'latency.rate', value: 1.994, ofCeiling: 0.8 },
  ]);

  test('say whether their target is met, and nothing when there is no value', () => {
    expect(rows.map(({ target, ok }) => [target, ok])).toEqual([
      ['≤ 4', true],
      ['≥ 2', false],
      ['≤ 1', null],
    ]);
    expect(() => rowsOf(measurement, [{ row: 'other', value: 1 }])).toThrow('other');
  });

  test('make a table', () => {
    expect(tableOfRows(rows).split('\n')).toEqual([
      'ROW           VALUE         ÷ CEILING  TARGET          MEANING',
      'latency.p50   4 ms                     ≤ 4     ok      half of them',
      'latency.rate  1.99/s        0.80       ≥ 2     MISSED  a second',
      'latency.cpu   not measured             ≤ 1             not to be had here',
    ]);
  });
});

describe('what throughput measures', () => {
  it('is what the rows that are asked for come of, in its own order', () => {
    expect(shapesFor((row) => row === 'throughput.child/ceiling-tree')).toEqual(['ceiling-tree', 'child']);
    expect(shapesFor((row) => row === 'throughput.direct.worker-cpu')).toEqual(['direct']);
    expect(shapesFor((row) => row.startsWith('latency'))).toEqual([]);
  });

  it('has the ceiling beside every rate', () => {
    expect(shapesFor((row) => row === 'throughput.direct')).toEqual(['ceiling-tree', 'direct']);
  });

  it('is everything when nothing is left out', () => {
    expect(shapesFor(() => true)).toHaveLength(9);
  });
});

describe('the command line', () => {
  test('selects rows by the beginning of their names, whatever is quick', () => {
    const selected = (...args: string[]) => {
      const { measurements, isShown } = select([measurement, slow], parseOptions(args));
      return measurements.flatMap(({ rows }) => rows.map(({ name }) => name).filter(isShown));
    };
    expect(selected()).toEqual(['latency.p50', 'latency.rate', 'latency.cpu', 'slow']);
    expect(selected('--quick')).toEqual(['latency.p50', 'latency.rate', 'latency.cpu']);
    expect(selected('--quick', '--only', 'slow, latency.r')).toEqual(['latency.rate', 'slow']);
  });

  test.each([
    [['--rounds', '0'], '--rounds must be a whole number'],
    [['--old-records', '1e9'], '--old-records must be a whole number from 1 to 100000000'],
    [['--only', ''], '--only must name rows'],
    [['--only', 'throughput'], 'no row begins with throughput'],
    [['--fast'], "Unknown option '--fast'"],
    [['--json'], '--json'],
  ])('refuses %j', (args, message) => {
    expect(() => select([measurement], parseOptions(args))).toThrow(message);
  });
});

test('a profile adds up self time by function and owner', () => {
  const frame = (functionName: string, url: string) => ({ functionName, url, lineNumber: 0 });
  const nodes = [
    { id: 1, callFrame: frame('(idle)', '') },
    { id: 2, callFrame: frame('query', 'file:///app/node_modules/pg/lib/client.js') },
    { id: 3, callFrame: frame('parseIntent', 'file:///app/api/intent.ts') },
    { id: 4, callFrame: frame('query', 'file:///app/node_modules/pg/lib/client.js') },
  ];
  const samples = [3, 1, 2, 3, 4];
  const profile = { startTime: 100, nodes, samples, timeDeltas: [50, 9_000, 1_000, 1_500, 2_000] };
  expect(
    selfTimes([{ profile, sinceUs: 200 }]).map(({ functionName, group, ms }) => [functionName, group, ms]),
  ).toEqual([
    ['(idle)', 'idle', 9],
    ['query', 'pg', 3],
    ['parseIntent', 'our code', 1.5],
  ]);
});

test("Actions are added up by type, and other namespaces' are left out", () => {
  const metrics = [
    '# TYPE action counter',
    'action{action_type="command_StartTimer",namespace="bench_on_failure",operation="a",service_name="frontend"} 3',
    'action{action_type="command_StartTimer",namespace="bench_on_failure",operation="b",service_name="frontend"} 4',
    'action{action_type="grpc_CreateSchedule",namespace="bench_on_failure",operation="c",service_name="frontend"} 1e+06',
    'action{action_type="command_StartTimer",namespace="bench_child",operation="a",service_name="frontend"} 7',
    'queue_actions{action_type="command_StartTimer",namespace="bench_on_failure"} 7',
  ].join('\n');
  expect(actionsOf(metrics, 'bench-on_failure')).toEqual({
    command_StartTimer: 7,
    grpc_CreateSchedule: 1_000_000,
  });
});
