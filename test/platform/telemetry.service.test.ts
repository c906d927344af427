/** Traces, the ids of their spans in the logs, the trace of a producer, and where traces and metrics go. */
import { createLogger } from '../../workers/logger.ts';
import { probeCounter } from '../../workers/probes.ts';
import { startTelemetry } from '../../workers/telemetry.ts';
import type { LogLine } from '../harness.ts';
import { dispatch, eventually, slotOfTests } from '../harness.ts';
import { publishTurn, turn } from '../intent/entries.ts';
import { entriesOf } from '../intent/rows.ts';
import { startCollector } from '../otlp-collector.ts';
import { GATEWAY, MAIL, append } from '../service-process.ts';

const slot = slotOfTests();
let printed: jest.SpyInstance;

beforeAll(async () => {
  // The console exporter prints each span; here it is enough that it does.
  printed = jest.spyOn(console, 'dir').mockImplementation(() => undefined);
  await slot.startService({ NOTIFICATION_OTEL_STDOUT_TRACES_ENABLED: 'true' });
});
afterAll(() => printed.mockRestore());

/** The trace ids with which a notification's acceptance and both publications were logged. */
const traceIdsOf = (id: string) =>
  eventually(`three log lines of ${id}`, async () => {
    const lines = slot.logs.filter(
      (line) =>
        line['notification_id'] === id &&
        ['accepted', 'published'].includes(String(line['outcome'] ?? line['result'])),
    );
    return lines.length === 3 && lines.map((line) => line['otel_trace_id']);
  });

test('I34 one trace reaches from the start of a notification to each publication, in spans of its workflow and activities; another has its own', async () => {
  const [first, second] = [await publishTurn(slot.redis, 'one'), await publishTurn(slot.redis, 'two')];
  const ofFirst = new Set(await traceIdsOf(first));
  const ofSecond = new Set(await traceIdsOf(second));
  expect([...ofFirst]).toEqual([expect.stringMatching(/^[0-9a-f]{32}$/)]);
  expect(ofSecond.size).toBe(1);
  expect(ofSecond).not.toEqual(ofFirst);
  const expected = [
    ...['StartWorkflow:notification', 'RunActivity:acceptIntent'],
    ...(dispatch() === 'child' ? ['RunActivity:publishRoute'] : []),
  ];
  await eventually('exported spans', async () => {
    const names = new Set(printed.mock.calls.map(([span]) => (span as { name: string }).name));
    return expected.every((name) => names.has(name));
  });
});

interface PrintedSpan {
  name: string;
  links: { context: { traceId: string; spanId: string }; attributes: Record<string, unknown> }[];
}

test('I77 a traceparent is linked where its intent is read, and handed on; without one, or with nonsense, nothing is', async () => {
  const [traceId, spanId] = ['4bf92f3577b34da6a3ce929d0e0e4736', '00f067aa0ba902b7'];
  const traceparents = [`00-${traceId}-${spanId}-01`, undefined, '"><script>'];
  const ids = await append(
    slot.redis,
    traceparents.map((traceparent, n) =>
      turn({ idempotency_key: `key-${n}`, recipient_user_ids_json: '["user-1"]', traceparent }),
    ),
  );
  for (const [n, id] of ids.entries()) {
    const handedOn = await eventually(`both outbound entries of ${id}`, async () => {
      const own = await Promise.all([GATEWAY, MAIL].map((stream) => entriesOf(slot, stream, `${id}/`)));
      return own.flat().length === 2 && own.flat();
    });
    const expected = n === 0 ? traceparents[0] : undefined;
    expect(handedOn.map(({ traceparent }) => traceparent?.toString())).toEqual([expected, expected]);
  }
  const contexts = await eventually('the spans of the reader', async () => {
    const links = printed.mock.calls.flatMap(([span]) =>
      (span as PrintedSpan).name === 'process intent' ? (span as PrintedSpan).links : [],
    );
    const found = ids.map(
      (id) => links.find(({ attributes }) => attributes['notification_id'] === id)?.context,
    );
    return !found.includes(undefined) && found;
  });
  expect(contexts[0]).toMatchObject({ traceId, spanId });
  for (const context of contexts.slice(1)) expect(context).toMatchObject({ spanId: '0'.repeat(16) });
});

describe('export', () => {
  let logs: LogLine[];
  const log = createLogger('debug', { write: (line: string) => void logs.push(JSON.parse(line) as LogLine) });
  const start = (env: Record<string, string>) =>
    startTelemetry(slot.config({ OTEL_METRIC_EXPORT_INTERVAL: '100', ...env }), log);

  beforeEach(() => {
    logs = [];
    printed.mockClear();
  });

  test('I33 metrics are printed to standard output when that is asked for, and only then', async () => {
    for (const enabled of ['false', 'true']) {
      const telemetry = start({ NOTIFICATION_OTEL_STDOUT_METRICS_ENABLED: enabled });
      probeCounter(telemetry.meter)({ path: '/healthz', status: 200 });
      await telemetry.shutdown();
      const names = printed.mock.calls
        .map(([metric]) => (metric as { descriptor?: { name: string } }).descriptor?.name)
        .filter(Boolean);
      expect(names).toEqual(enabled === 'true' ? ['notification.internal_http.requests'] : []);
    }
  });

  test('I33 the last export happens at shutdown, below the URL of the collector, under the name that the environment has', async () => {
    const collector = await startCollector();
    process.env['OTEL_SERVICE_NAME'] = 'notify-7';
    const telemetry = start({
      OTEL_EXPORTER_OTLP_ENDPOINT: `${collector.url}/own/path/`,
      OTEL_METRIC_EXPORT_INTERVAL: '60000',
    });
    delete process.env['OTEL_SERVICE_NAME'];
    probeCounter(telemetry.meter)({ path: '/healthz', status: 200 });
    await telemetry.shutdown();

    expect(collector.paths).toEqual(['/own/path/v1/metrics']);
    expect(collector.exports[0]?.resource).toMatchObject({ 'service.name': 'notify-7' });
    expect(collector.latest('notification.internal_http.requests')).toHaveLength(1);
    await collector.stop();
  });

  test('I33 I35 a collector that never answers costs one warning, and little time at shutdown', async () => {
    const collector = await startCollector({ answers: false });
    const telemetry = start({ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url });
    probeCounter(telemetry.meter)({ path: '/healthz', status: 200 });
    await eventually('a few exports', async () => collector.paths.length >= 5);
    const warnings = logs.filter(({ msg }) => msg === 'OpenTelemetry has a problem');
    expect(warnings).toMatchObject([{ level: 'warn', reason: expect.stringMatching(/export.*timed out/) }]);

    await telemetry.shutdown();
    expect(logs.at(-1)).toMatchObject({
      msg: 'the last traces and metrics were not exported in time',
      limit_ms: 1_500,
    });
    await collector.stop();
  });
});
