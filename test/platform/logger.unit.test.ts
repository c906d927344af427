/** What never gets into a log (workers/logger.ts), and gauges: one that hangs or fails leaves out no other (activities/metrics.ts). */
import { PassThrough } from 'node:stream';
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import type { Logger } from 'pino';
import type { GaugeRead } from '../../activities/metrics.ts';
import { observeReads } from '../../activities/metrics.ts';
import { createLogger, logDestination } from '../../workers/logger.ts';

const SECRETS = ['password', 'token', 'taskToken', 'authorization', 'email', 'dsn', 'resolved_email'];

function logged(fields: object): string {
  const lines: string[] = [];
  createLogger('info', { write: (line) => void lines.push(line) }).info(fields, 'told');
  return lines.join('');
}

test.each(SECRETS)('I34 security-18 the value of %s is left out, at every depth', (name) => {
  expect(logged({ [name]: 'secret-1', kept: 'seen' })).toMatch(/"kept":"seen"/);
  let fields: object = { [name]: 'secret-1', kept: 'seen' };
  for (let depth = 0; depth < 20; depth += 1) {
    expect([depth, logged(fields)]).not.toEqual([depth, expect.stringContaining('secret-1')]);
    fields = depth % 2 === 0 ? { within: fields } : { list: [fields] };
  }
});

test('I34 security-18 an error is logged with its stack, without rows of PostgreSQL and commands to Redis', () => {
  const error = Object.assign(new Error('duplicate key'), {
    code: '23505',
    detail: 'Key (email)=(alice@example.com) already exists.',
    // As ioredis leaves it on the error of a command, and on those of a transaction that was called off.
    command: { name: 'xadd', args: ['mail:delivery_commands', 'alice@example.com'] },
    previousErrors: [Object.assign(new Error('OOM'), { command: { name: 'eval', args: ['alice'] } })],
    nested: { token: 'secret-2' },
  });
  for (const name of ['error', 'err', 'reason']) {
    const line = logged({ [name]: error });
    expect(line).toMatch(/"message":"duplicate key","stack":"Error: duplicate key\\n.*logger.unit.test/);
    expect(line).toContain('23505');
    expect(line).not.toMatch(/alice|secret-2/);
  }
  expect(logged(error)).not.toMatch(/alice|secret-2/);
});

test('I34 an object that holds itself, and what says itself how it looks, are logged', () => {
  const loop: Record<string, unknown> = { kept: 'seen', at: new Date(0), url: new URL('http://a/b') };
  loop['self'] = loop;
  expect(logged(loop)).toContain('"kept":"seen","at":"1970-01-01T00:00:00.000Z","url":"http://a/b"');
});

/** What a logger writes to a stream that is a terminal, or is not. */
async function written(isTerminal: boolean, isProduction: boolean): Promise<string> {
  const stream = new PassThrough();
  const terminal = Object.assign(stream, { isTTY: isTerminal, hasColors: () => false });
  const destination = await logDestination(terminal as unknown as NodeJS.WriteStream, isProduction);
  const log = createLogger('info', destination);
  log.warn({ shard: 2, token: 'secret-3', reason: '\u001b[2J' }, 'account callbacks wait\u001b[2J');
  return String(stream.read());
}

test('I34 on a terminal, a log line is what a person reads, and nothing in it steers the terminal', async () => {
  const line = await written(true, false);
  expect(line).toMatch(/^\[\d\d:\d\d:\d\d\.\d{3}\] WARN: account callbacks wait.* \{"shard":2,.*\}\n$/);
  expect(line).not.toMatch(/secret-3|galaxy-notify/);
  expect(line).not.toContain('\u001b');
});

test.each([
  { where: 'in production', isTerminal: true, isProduction: true },
  { where: 'where no user reads along', isTerminal: false, isProduction: false },
])('I34 $where, a log line is JSON', async ({ isTerminal, isProduction }) => {
  expect(JSON.parse(await written(isTerminal, isProduction))).toMatchObject({
    level: 'warn',
    service: 'galaxy-notify',
    shard: 2,
    msg: expect.stringContaining('account callbacks wait') as string,
  });
});

const named = (name: string, read: GaugeRead['read']): GaugeRead => ({
  gauges: { [name]: { description: name } },
  read,
});

test('I33 a gauge that hangs or fails silences no other, and a hanging server is asked once', async () => {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.DELTA);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 });
  const meters = new MeterProvider({ readers: [reader] });
  const lines: object[] = [];
  const log = { warn: (fields: object) => void lines.push(fields) } as unknown as Logger;
  const hang = jest.fn(() => new Promise<never>(() => undefined));
  const reads = [
    named('hangs', hang),
    named('fails', () => Promise.reject(new Error('no table'))),
    named('works', async () => [{ gauge: 'works', value: 7 }]),
  ];
  const end = observeReads(meters.getMeter('test'), log, reads, 50);
  const exportOnce = async () => {
    exporter.reset();
    await meters.forceFlush();
    return exporter
      .getMetrics()
      .flatMap(({ scopeMetrics }) => scopeMetrics.flatMap(({ metrics }) => metrics))
      .filter(({ dataPoints }) => dataPoints.length > 0)
      .map(({ descriptor, dataPoints }) => [descriptor.name, dataPoints[0]!.value]);
  };

  expect(await exportOnce()).toEqual([['works', 7]]);
  expect(new Set(lines)).toEqual(
    new Set([
      { gauges: ['hangs'], reason: 'no answer within 0.05 s' },
      { gauges: ['fails'], reason: 'no table' },
    ]),
  );
  expect(await exportOnce()).toEqual([['works', 7]]);
  expect(hang).toHaveBeenCalledTimes(1);
  end();
  expect(await exportOnce()).toEqual([]);
  await meters.shutdown();
});
