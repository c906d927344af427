/** The standard variables of OpenTelemetry: honored, or left to its packages; what cannot be honored is refused by name. */
import { loadConfig } from '../../config/load.ts';
import { OTEL_FIXED } from '../../config/service.ts';
import { temporalMetrics } from '../../workers/telemetry.ts';
import { problemsOf } from './config-problems.ts';

const COLLECTOR = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' };

test.each([
  ['OTEL_EXPORTER_OTLP_PROTOCOL', 'grpc'],
  ['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', 'grpc'],
  ['OTEL_EXPORTER_OTLP_METRICS_PROTOCOL', 'http/protobuf'],
  ['OTEL_TRACES_EXPORTER', 'jaeger'],
  ['OTEL_METRICS_EXPORTER', 'prometheus'],
  ['OTEL_LOGS_EXPORTER', 'otlp'],
  ['OTEL_SDK_DISABLED', 'true'],
  ['OTEL_EXPORTER_OTLP_HEADERS', 'no pair'],
  ['OTEL_EXPORTER_OTLP_HEADERS', 'name=%zz'],
])('intent-OTEL %s=%s is refused by name', (name, text) => {
  const problems = problemsOf({ [name]: text });
  expect(problems).toHaveLength(1);
  expect(problems[0]).toContain(`${name} `);
});

test('intent-OTEL what is honored, or left to OpenTelemetry itself, is taken', () => {
  const { values } = loadConfig({
    ...COLLECTOR,
    OTEL_TRACES_EXPORTER: 'none',
    ...Object.fromEntries(OTEL_FIXED),
    OTEL_EXPORTER_OTLP_HEADERS: 'Api-Key=a%20b, other = 1',
    OTEL_TRACES_SAMPLER: 'always_on',
  });
  expect(values.OTEL_EXPORTER_OTLP_HEADERS).toEqual({ 'api-key': 'a b', other: '1' });
});

test("intent-OTEL metrics of Temporal's SDK go where the others go, with the same headers, or nowhere", () => {
  const otelOf = (env: Record<string, string>) => temporalMetrics(loadConfig({ ...COLLECTOR, ...env }));
  expect(otelOf({ OTEL_EXPORTER_OTLP_HEADERS: 'api-key=1,tenant=a' })).toMatchObject({
    otel: { headers: { 'api-key': '1', tenant: 'a' }, url: 'http://collector:4318/v1/metrics' },
  });
  expect(otelOf({ OTEL_METRICS_EXPORTER: 'none' })).toBeUndefined();
});

test('intent-OTEL a header is not shown when it is wrong', () => {
  expect(problemsOf({ OTEL_EXPORTER_OTLP_HEADERS: 's3cret' }).join()).not.toContain('s3cret');
});
