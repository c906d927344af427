/** The benchmark's arithmetic; what it measures is judged by running it. */
import { actionsOf } from '../../bench/actions.ts';
import { drainRatio, meanInFifth } from '../../bench/statistics.ts';

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
