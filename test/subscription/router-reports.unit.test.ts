/** What a process remembers of its routers for operators. */
import type { RouterError } from '../../activities/subscription/router/ports.ts';
import { createLastErrors } from '../../activities/subscription/router/routers.ts';

const failed = (source: 'SMP' | 'BROKER' | 'AGENT', code: string): RouterError => ({ source, code });
const address = (port: number) => ({ host: 'smp.example', port, keyHash: 'print' });

test('N19 the last error of each router is remembered, and none that is about a queue or this side', () => {
  const reports = createLastErrors();
  const silent = failed('BROKER', 'TIMEOUT');

  reports.note(address(1), silent);
  reports.note(address(1), failed('SMP', 'AUTH'));
  reports.note(address(1), failed('AGENT', 'INACTIVE'));
  reports.note(address(2), failed('SMP', 'AUTH'));
  expect(reports.of(address(1))?.error.code).toBe('TIMEOUT');
  expect(reports.of(address(2))).toBeUndefined();

  reports.note(address(1), failed('SMP', 'QUOTA'));
  expect(reports.of(address(1))?.error.code).toBe('QUOTA');
});

test('N19 of more routers than are remembered, the ones with the oldest errors are forgotten', () => {
  const reports = createLastErrors();
  for (let port = 1; port <= 1_025; port += 1) reports.note(address(port), failed('BROKER', 'NETWORK'));

  expect(reports.of(address(1))).toBeUndefined();
  expect(reports.of(address(2))).toBeDefined();
  expect(reports.of(address(1_025))).toBeDefined();
});
