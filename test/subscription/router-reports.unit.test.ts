/** What a process remembers of its routers for operators. */
import type { RouterResult } from '../../activities/subscription/router/ports.ts';
import { createRouterReports } from '../../activities/subscription/router/reports.ts';

const failed = (source: 'SMP' | 'BROKER' | 'AGENT', code: string): RouterResult<never> => ({
  ok: false,
  error: { source, code },
});
const address = (port: number) => ({ host: 'smp.example', port, keyHash: 'print' });

test('N19 the last error of each router is remembered, and none that is about a queue or this side', () => {
  const reports = createRouterReports();
  const silent = failed('BROKER', 'TIMEOUT');

  reports.noteAll(address(1), [silent]);
  reports.noteAll(address(1), [failed('SMP', 'AUTH'), { ok: true, value: 1 }, failed('AGENT', 'INACTIVE')]);
  reports.noteAll(address(2), [failed('SMP', 'AUTH')]);
  expect(reports.lastErrorOf(address(1))?.error.code).toBe('TIMEOUT');
  expect(reports.lastErrorOf(address(2))).toBeUndefined();

  reports.noteAll(address(1), [failed('SMP', 'QUOTA')]);
  expect(reports.lastErrorOf(address(1))?.error.code).toBe('QUOTA');
});

test('N19 of more routers than are remembered, the ones with the oldest errors are forgotten', () => {
  const reports = createRouterReports();
  for (let port = 1; port <= 1_025; port += 1) reports.noteAll(address(port), [failed('BROKER', 'NETWORK')]);

  expect(reports.lastErrorOf(address(1))).toBeUndefined();
  expect(reports.lastErrorOf(address(2))).toBeDefined();
  expect(reports.lastErrorOf(address(1_025))).toBeDefined();
});
