/** The probe listener: two routes, their bodies, and nothing else. */
import { once } from 'node:events';
import { connect } from 'node:net';
import type { Meter } from '@opentelemetry/api';
import { loadConfig } from '../../config/load.ts';
import { OpenParts } from '../../workers/context.ts';
import { createLogger } from '../../workers/logger.ts';
import type { Probes } from '../../workers/probes.ts';
import { openProbes } from '../../workers/probes.ts';
import { eventually } from '../eventually.ts';
import type { LogLine } from '../harness.ts';
import { ofEachTest } from '../of-tests.ts';

let logs: LogLine[];
let counted: unknown[];

const log = createLogger('debug', { write: (line: string) => void logs.push(JSON.parse(line) as LogLine) });
const meter = {
  createCounter: () => ({ add: (_: 1, attributes: unknown) => void counted.push(attributes) }),
} as unknown as Meter;
const start = (address = ':0', limits: Record<string, string> = {}): Promise<Probes> => {
  const config = loadConfig({ NOTIFICATION_INTERNAL_HTTP_ADDR: address, ...limits });
  return openProbes({ config, log, meter, open: new OpenParts(log) });
};

beforeEach(() => {
  [logs, counted] = [[], []];
});
const probes = ofEachTest(
  () => start(),
  (started) => started.stop(),
);

const get = (path: string, init?: RequestInit): Promise<Response> => fetch(probes.url + path, init);
const portOf = ({ url }: Probes): number => Number(new URL(url).port);

/** A client that has written this by hand; `read` collects all that it is sent. */
async function rawClient(to: Probes, text = '') {
  const socket = connect(portOf(to), '127.0.0.1');
  let received = '';
  socket.setEncoding('utf8').on('data', (more: string) => (received += more));
  // A reset closes as well.
  socket.on('error', () => undefined);
  const closed = new Promise((resolve) => socket.once('close', resolve));
  await once(socket, 'connect');
  socket.write(text);
  return { socket, read: () => received, closed };
}

/** The status and the body of an answer; each is JSON. */
async function said(path: string, method = 'GET') {
  const response = await get(path, { method });
  expect(response.headers.get('content-type')).toBe('application/json');
  return [response.status, await response.text()];
}

test('I31 /healthz is ok from the start, /readyz is 503 until the process is ready, and again when it is not', async () => {
  // A query makes no difference.
  expect(await said('/healthz?verbose=1')).toEqual([200, '{"status":"ok"}']);
  expect(await said('/readyz?')).toEqual([503, '{"status":"not_ready"}']);
  probes.setReady(true);
  expect(await said('/readyz')).toEqual([200, '{"status":"ready"}']);
  probes.setReady(false);
  expect(await said('/readyz')).toEqual([503, '{"status":"not_ready"}']);
  expect(await said('/healthz')).toEqual([200, '{"status":"ok"}']);
});

test('I31 there is no other path, and only GET and HEAD are allowed', async () => {
  probes.setReady(true);
  for (const path of ['/metrics', '/healthz/', '/Healthz', '//healthz'])
    expect([path, ...(await said(path))]).toEqual([path, 404, '{"error":"not_found"}']);
  for (const path of ['/healthz', '/readyz']) {
    expect(await said(path, 'POST')).toEqual([405, '{"error":"method_not_allowed"}']);
    expect((await get(path, { method: 'POST' })).headers.get('allow')).toBe('GET, HEAD');
    expect(await said(path, 'HEAD')).toEqual([200, '']);
  }
});

describe('listener', () => {
  test('I31 a taken port is an error that names the variable', async () => {
    const port = portOf(probes);
    const error = `port ${port} is taken; set NOTIFICATION_INTERNAL_HTTP_ADDR to another one`;
    await expect(start(`:${port}`)).rejects.toThrow(error);
    expect((await get('/healthz')).status).toBe(200);
  });

  test.each<[string, string[], string, RegExp]>([
    [
      'a client that does not finish its headers is cut off',
      ['READ_HEADER', 'READ'],
      'GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ',
      /^HTTP\/1\.1 408 /,
    ],
    [
      'an idle connection is closed',
      ['IDLE'],
      'GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n',
      /^HTTP\/1\.1 200 .*\{"status":"ok"\}/s,
    ],
  ])('I31 %s', async (_, limits, sent, answer) => {
    const names = limits.map((limit) => `NOTIFICATION_INTERNAL_HTTP_${limit}_TIMEOUT`);
    const impatient = await start(':0', Object.fromEntries(names.map((name) => [name, '50ms'])));
    try {
      const { read, closed } = await rawClient(impatient, sent);
      await closed;
      expect(read()).toMatch(answer);
    } finally {
      await impatient.stop();
    }
  });

  test('I31 I35 a request that was under way when stop began is answered 503 before stop ends', async () => {
    probes.setReady(true);
    const unfinished = 'GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n';
    const { socket, read, closed } = await rawClient(probes, unfinished);
    // The answer to a later connection shows that the server has read what came before.
    expect((await get('/readyz')).status).toBe(200);

    let stopped = false;
    const stopping = probes.stop().then(() => (stopped = true));
    await new Promise(setImmediate);
    expect(stopped).toBe(false);

    socket.write('\r\n');
    await closed;
    await stopping;
    expect(read()).toMatch(/^HTTP\/1\.1 503 .*\{"status":"not_ready"\}/s);
  }, 5_000);

  test('I31 I35 after stop no server is listening and no connection is left, unfinished ones included', async () => {
    const idle = await rawClient(probes);
    const unfinished = await rawClient(probes, 'GET /readyz HTTP/1.1\r\nHost: x\r\n');
    expect((await get('/healthz')).status).toBe(200);

    await probes.stop();
    await expect(get('/healthz')).rejects.toThrow('fetch failed');
    await Promise.all([idle.closed, unfinished.closed]);
    await (await start(`:${portOf(probes)}`)).stop();
  }, 5_000);
});

test('I31 I33 every request is logged at debug and counted, an unknown path as other', async () => {
  await get('/healthz');
  await get('/readyz?verbose=1');
  await get('/healthz', { method: 'POST' });
  await get(`/users/ada@example.com/${'x'.repeat(500)}`);

  await eventually('four counted requests', async () => counted.length === 4);
  const requests = [
    { path: '/healthz', status: 200 },
    { path: '/readyz', status: 503 },
    { path: '/healthz', status: 405 },
    { path: 'other', status: 404 },
  ];
  expect(counted).toEqual(requests);
  const lines = logs.filter(({ msg }) => msg === 'probe answered');
  expect(lines).toMatchObject(requests.map((one) => ({ ...one, level: 'debug' })));
  expect(lines.map(({ method }) => method)).toEqual(['GET', 'GET', 'POST', 'GET']);
  expect(lines.every(({ duration_ms }) => Number(duration_ms) >= 0)).toBe(true);
});
