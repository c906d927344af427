/** An OpenTelemetry collector for tests: takes OTLP over HTTP as JSON and keeps what it was told about metrics. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { buffer, json } from 'node:stream/consumers';
import { listen } from '../dev/servers/ports.ts';
import { shared } from './of-tests.ts';

/** The collector of a file of tests. */
export const { ofTests: collectorOfTests } = shared(startCollector, (collector) => collector.stop());

/** @param answers false: requests are read and never answered. */
export async function startCollector({ answers = true } = {}) {
  const exports: ReturnType<typeof exportOf>[] = [];
  const paths: string[] = [];
  const temporalMetrics = new Set<string>();
  const server = createServer((request, response) => {
    paths.push(request.url ?? '');
    if (!answers) return;
    if (request.headers['content-type'] === 'application/x-protobuf') {
      // Texts stand in a protobuf message as they are.
      void buffer(request).then((body) => {
        for (const [name] of body.toString('latin1').matchAll(/temporal_[a-z_]+/g)) temporalMetrics.add(name);
        response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end();
      });
      return;
    }
    void json(request).then((body) => {
      const { resourceMetrics = [] } = body as { resourceMetrics?: OtlpResourceMetrics[] };
      exports.push(...resourceMetrics.map(exportOf));
      response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    });
  });
  const port = await listen(server);
  /** The points of a metric in the newest export; none when it is not in it. */
  const latest = (name: string) => exports.at(-1)?.points.get(name) ?? [];
  return {
    url: `http://127.0.0.1:${port}`,
    /** Oldest first. */
    exports: exports as readonly (typeof exports)[number][],
    latest,
    /** The same as `attribute=value attribute=value: count`. */
    counts: (name: string): Record<string, number> =>
      Object.fromEntries(
        latest(name).map(({ attributes, value }) => [
          Object.entries(attributes)
            .map(([key, of]) => `${key}=${of}`)
            .sort()
            .join(' '),
          value,
        ]),
      ),
    /** Of its points with these attributes. */
    sumOf: (name: string, expected: Record<string, string> = {}): number =>
      latest(name)
        .filter(({ attributes }) =>
          Object.entries(expected).every(([key, value]) => attributes[key] === value),
        )
        .reduce((sum, { value }) => sum + value, 0),
    /** Names of the metrics of Temporal's SDK, which exports by itself and in binary form. */
    temporalMetrics,
    /** Of all requests so far, traces included. */
    paths,
    stop: async () => {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

/** The parts of opentelemetry/proto/metrics/v1/metrics.proto that the service uses. */
interface OtlpResourceMetrics {
  resource: { attributes: OtlpAttribute[] };
  scopeMetrics: { metrics: OtlpMetric[] }[];
}
interface OtlpMetric {
  name: string;
  sum?: { dataPoints: OtlpPoint[] };
  gauge?: { dataPoints: OtlpPoint[] };
}
interface OtlpPoint {
  attributes: OtlpAttribute[];
  asInt?: number | string;
  asDouble?: number;
}
interface OtlpAttribute {
  key: string;
  value: { stringValue?: string; intValue?: number };
}

/** What one export said: the points of each counter and gauge in it. */
function exportOf({ resource, scopeMetrics }: OtlpResourceMetrics) {
  const metrics = scopeMetrics.flatMap((scope) => scope.metrics);
  return {
    resource: attributesOf(resource.attributes),
    points: new Map(metrics.map(({ name, sum, gauge }) => [name, (sum ?? gauge)!.dataPoints.map(pointOf)])),
  };
}

const pointOf = ({ attributes, asInt, asDouble }: OtlpPoint) => ({
  attributes: attributesOf(attributes),
  value: Number(asInt ?? asDouble),
});

const attributesOf = (list: OtlpAttribute[]): Record<string, string | number | undefined> =>
  Object.fromEntries(list.map(({ key, value }) => [key, value.stringValue ?? value.intValue]));
