/** A Prometheus of a test's own, which takes what services export. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { findGoProgram } from '../../dev/go-programs.ts';
import { report } from '../../dev/program.ts';
import { LOOPBACK, freePort } from '../../dev/servers/ports.ts';
import { startServer } from '../../dev/servers/server-process.ts';

export interface Prometheus {
  /** Where services export metrics to. */
  otlpUrl: string;
  /** Whether an expression has a value now: then the alarm that is made of it would ring. */
  isTrue(expression: string): Promise<boolean>;
  stop(): Promise<void>;
}

/** How long a value counts that is not exported any more: what `metric_expiration` of a collector is, docs/operate/logs-and-traces.md. */
const FORGETS_AFTER = '5s';

/** @param scraped what is scraped as `otel-collector`, `<host>:<port>`. */
export async function startPrometheus(scraped: string): Promise<Prometheus> {
  const command = await findGoProgram('prometheus', report);
  const dir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-prometheus-'));
  const port = await freePort();
  const config = path.join(dir, 'prometheus.json');
  mkdirSync(path.join(dir, 'data'));
  // JSON is YAML.
  writeFileSync(
    config,
    JSON.stringify({
      scrape_configs: [
        {
          job_name: 'otel-collector',
          scrape_interval: '1s',
          scrape_timeout: '1s',
          static_configs: [{ targets: [scraped] }],
        },
      ],
    }),
  );
  const url = `http://${LOOPBACK}:${port}`;
  const server = await startServer({
    name: 'prometheus',
    title: 'Prometheus',
    dataDir: dir,
    command,
    args: [
      `--config.file=${config}`,
      `--storage.tsdb.path=${path.join(dir, 'data')}`,
      `--web.listen-address=${LOOPBACK}:${port}`,
      '--web.enable-otlp-receiver',
      `--query.lookback-delta=${FORGETS_AFTER}`,
      '--log.level=warn',
    ],
    ports: [{ port, name: 'Prometheus' }],
    ready: async () => {
      const response = await fetch(`${url}/-/ready`);
      if (!response.ok) throw new Error(`it answers ${response.status}`);
    },
    report,
  });
  return {
    otlpUrl: `${url}/api/v1/otlp`,
    async isTrue(expression) {
      const response = await fetch(`${url}/api/v1/query`, {
        method: 'POST',
        body: new URLSearchParams({ query: expression }),
      });
      const answer = (await response.json()) as { error?: string; data?: { result: unknown[] } };
      if (!answer.data) throw new Error(`${expression}: ${answer.error}`);
      return answer.data.result.length > 0;
    },
    async stop() {
      await server.stop();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}
