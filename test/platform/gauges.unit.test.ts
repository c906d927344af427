/** Gauges: each is read within its time, and one that hangs or fails leaves out no other. */
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import type { Logger } from 'pino';
import type { GaugeRead } from '../../activities/metrics.ts';
import { observeReads } from '../../activities/metrics.ts';

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
  let asked = 0;
  const end = observeReads(
    meters.getMeter('test'),
    log,
    [
      named('hangs', () => {
        asked += 1;
        return new Promise(() => undefined);
      }),
      named('fails', async () => {
        throw new Error('no table');
      }),
      named('works', async () => [{ gauge: 'works', value: 7 }]),
    ],
    50,
  );
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
  expect(lines).toHaveLength(2);
  expect(lines).toEqual(
    expect.arrayContaining([
      { gauges: ['hangs'], reason: 'no answer within 0.05 s' },
      { gauges: ['fails'], reason: 'no table' },
    ]),
  );
  expect(await exportOnce()).toEqual([['works', 7]]);
  expect(asked).toBe(1);
  end();
  expect(await exportOnce()).toEqual([]);
  await meters.shutdown();
});
