/**
 * Answers of everything that the service calls over HTTP, from servers that follow no rule: each call ends in time with
 * a decision, whatever comes back, follows no redirect, and takes no memory for it. FUZZ_CASES sets how many there are.
 */
import { once } from 'node:events';
import type { AddressInfo, Server, Socket } from 'node:net';
import { createServer } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { createPortfolioService } from '../../activities/account-callback/delivery.ts';
import { createHttpCaller } from '../../activities/http/caller.ts';
import { deliver } from '../../activities/http/delivery.ts';
import {
  UnusableUserError,
  UserServiceError,
  createUserService,
} from '../../activities/intent/user-service.ts';
import { DEVELOPMENT_SIGNING_SECRET } from '../../config/caller.ts';
import { createLogger } from '../../workers/logger.ts';
import { json, share, text } from './nasty-inputs.ts';

/** Cases at the same time, each against its own server: many of them are nothing but waiting for the time-out. */
const LANES = process.env['FUZZ_CASES'] === undefined ? 16 : 128;
const ROUNDS = Math.ceil(share(0.25).numRuns / LANES);
const TIMEOUT_MS = 200;
/** How much later than its time-out a call may end on a machine that does other things as well, ms. */
const SLACK_MS = 20_000;
const LIMIT_MS = 120_000 + ROUNDS * 10 * (TIMEOUT_MS + LANES * 5);
/** What all cases of a test may leave behind in memory, bytes: less than a few endless answers would. */
const MOST_GROWTH = 50 << 20;

const caller = createHttpCaller({ token: 'caller-token', signingSecrets: [DEVELOPMENT_SIGNING_SECRET] });
afterAll(() => caller.close());

/** How a server answers. */
interface Script {
  /** What it sends immediately. */
  head: Buffer;
  /** Then: it ends, breaks the connection, falls silent, drips bytes, or goes on for ever. */
  then: 'end' | 'reset' | 'silence' | 'drip' | 'endless';
}

const statusLine = fc
  .oneof(
    {
      weight: 4,
      arbitrary: fc.constantFrom(200, 200, 201, 204, 301, 302, 304, 307, 400, 404, 409, 429, 500, 503),
    },
    { weight: 1, arbitrary: fc.integer({ min: 0, max: 9_999 }) },
  )
  .map((status) => `HTTP/1.1 ${status} X\r\n`);

const headerLine = fc.oneof(
  fc.constantFrom(
    'content-length: 10',
    'content-length: 0',
    'content-length: 99999999999999999999',
    'content-length: -1',
    'content-length: abc',
    'content-length: 5\r\ncontent-length: 6',
    'transfer-encoding: chunked',
    'transfer-encoding: chunked\r\ncontent-length: 3',
    'content-type: application/json',
    'content-encoding: gzip',
    'connection: close',
    'location: {elsewhere}',
    'retry-after: 99999999999999',
    `x-large: ${'x'.repeat(20_000)}`,
    ': no name',
    'no colon',
    'x: \0',
  ),
  text.map((value) => `x-any: ${value}`),
);

const body = fc.oneof(
  json,
  text,
  fc.constantFrom(
    '{"user_id":"u","email":"a@example.com","preferred_language":"en"}',
    '{"user_id":"u","email":"a@exam',
    '{"user_id":"other","email":"a@example.com","preferred_language":"en"}',
    '{"error":{"code":"subject_not_found"}}',
    '{"version":17,"session":"s"}\n',
    '5\r\nabcde\r\nzz\r\n',
    'ffffffffffffffff\r\n',
  ),
);

const script: fc.Arbitrary<Script> = fc
  .record({
    bytes: fc.oneof(
      {
        weight: 8,
        arbitrary: fc
          .tuple(statusLine, fc.array(headerLine, { maxLength: 4 }), body)
          .map(([status, headers, content]) =>
            Buffer.from(`${status}${headers.map((line) => `${line}\r\n`).join('')}\r\n${content}`),
          ),
      },
      { weight: 1, arbitrary: fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)) },
      { weight: 1, arbitrary: fc.constant(Buffer.from(`HTTP/1.1 200 OK\r\nx: ${'y'.repeat(200_000)}`)) },
    ),
    cutAt: fc.option(fc.nat(400), { freq: 3 }),
    then: fc.constantFrom<Script['then'][]>('end', 'end', 'end', 'reset', 'silence', 'drip', 'endless'),
  })
  .map(({ bytes, cutAt, then }) => ({ head: cutAt === null ? bytes : bytes.subarray(0, cutAt), then }));

interface Lane {
  /** How its servers answer now. */
  script: Script;
  url: string;
}

const sockets = new Set<Socket>();
let visitsElsewhere = 0;
let elsewhere: string;
const servers: Server[] = [];

const CHUNK = Buffer.alloc(64 * 1024, ' ');

function answer(socket: Socket, lane: Pick<Lane, 'script'>): void {
  sockets.add(socket);
  socket.on('error', () => undefined);
  let timer: NodeJS.Timeout | undefined;
  socket.once('close', () => {
    sockets.delete(socket);
    clearInterval(timer);
  });
  const { head, then } = lane.script;
  // To the first bytes of a request only: a connection that is used again gets its answer with the next script.
  socket.on('data', () => {
    socket.write(Buffer.from(head.toString('latin1').replace('{elsewhere}', elsewhere), 'latin1'));
    if (then === 'end') socket.end();
    if (then === 'reset') socket.destroy();
    if (then === 'drip') timer ??= setInterval(() => socket.write('x'), 20);
    if (then === 'endless') pour(socket);
  });
}

/** As fast as it is taken. */
function pour(socket: Socket): void {
  while (!socket.destroyed && socket.write(CHUNK));
  if (!socket.destroyed) socket.once('drain', () => pour(socket));
}

async function listening<T extends Server>(server: T): Promise<number> {
  servers.push(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

let lanes: Lane[];
beforeAll(async () => {
  const port = await listening(
    createServer((socket) => {
      visitsElsewhere += 1;
      socket.destroy();
    }),
  );
  elsewhere = `http://127.0.0.1:${port}/`;
  lanes = await Promise.all(
    Array.from({ length: LANES }, async () => {
      const lane = { script: { head: Buffer.alloc(0), then: 'end' } as Script };
      const answerIt = (socket: Socket) => answer(socket, lane);
      const lanePort = await listening(createServer(answerIt));
      return Object.assign(lane, { url: `http://127.0.0.1:${lanePort}` });
    }),
  );
});
afterAll(() => {
  for (const socket of sockets) socket.destroy();
  for (const server of servers) server.close();
});

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

/**
 * What is still referred to: the resident set also has what the servers here have freed. One collection leaves the buffers
 * that it found to a sweeper beside it; the next one waits for their bytes.
 */
function keptBytes(): number {
  collectGarbage();
  collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** Runs a call against every script. */
async function each(call: (lane: Lane) => Promise<void>): Promise<void> {
  const before = keptBytes();
  const scripts = fc.array(script, { minLength: LANES, maxLength: LANES });
  await fc.assert(
    fc.asyncProperty(scripts, async (chosen) => {
      await Promise.all(
        lanes.map(async (lane, index) => {
          lane.script = chosen[index]!;
          const startedAt = Date.now();
          await call(lane);
          expect(Date.now() - startedAt).toBeLessThan(TIMEOUT_MS + SLACK_MS);
        }),
      );
    }),
    { numRuns: ROUNDS, endOnFailure: true },
  );
  expect(keptBytes() - before).toBeLessThan(MOST_GROWTH);
  expect(visitsElsewhere).toBe(0);
}

test(
  'I11 I12 whatever the User Service answers, a recipient is found, unknown, or to be looked up again',
  async () => {
    const log = createLogger('fatal');
    await each(async ({ url }) => {
      // A new one each time: its breaker would leave the server alone.
      const users = createUserService({ baseUrl: url, timeoutMs: TIMEOUT_MS, caller, log });
      const found = await users.findRecipient('u').catch((error: unknown) => {
        expect([UserServiceError.name, UnusableUserError.name]).toContain((error as Error).name);
        expect((error as Error).message).not.toContain('a@exam');
        return undefined;
      });
      if (found !== undefined) expect(found).toEqual({ userId: 'u', email: 'a@example.com', locale: 'en' });
    });
  },
  LIMIT_MS,
);

const KINDS = ['refused', 'timed_out', 'failed'];

test(
  'C3 C5 whatever a portfolio service answers, a callback is acknowledged or has failed, with one line of reason',
  async () => {
    const services = new Map(
      lanes.map(({ url }) => [url, createPortfolioService({ baseUrl: url, timeoutMs: TIMEOUT_MS, caller })]),
    );
    const callback = {
      userId: 'u',
      kind: 'hourly',
      periodStartMs: 0,
      peakValue: '1',
      peakAtMs: 0,
      bottomValue: '1',
      bottomAtMs: 0,
      closingValue: '1',
    } as const;
    await each(async ({ url }) => {
      const failure = await services.get(url)!.deliver(callback, new AbortController().signal);
      if (failure !== undefined) expectReason(failure);
    });
  },
  LIMIT_MS,
);

function expectReason({ kind, message }: { kind: string; message: string }): void {
  expect(KINDS).toContain(kind);
  expect(message.length).toBeLessThan(1_000);
  expect(message).not.toMatch(/\p{Cc}/u);
}

test(
  'S1 whatever a target answers, a push is acknowledged or has failed, with one line of reason',
  () =>
    each(async ({ url }) => {
      const failure = await deliver({
        ...{ method: 'PUT', url, body: '{}', timeoutMs: TIMEOUT_MS, caller, id: 'symbols_1' },
        stopped: new AbortController().signal,
      });
      if (failure !== undefined) expectReason(failure);
    }),
  LIMIT_MS,
);
