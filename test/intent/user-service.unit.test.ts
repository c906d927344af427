/** The client of the User Service, against the stand-in, and what `doctor` says of that service, which it asks as the service does. */
import type { RequestListener, Server } from 'node:http';
import { createServer } from 'node:http';
import { types } from 'node:util';
import { createHttpCaller } from '../../activities/http/caller.ts';
import type { UserService } from '../../activities/intent/user-service.ts';
import { UserServiceError, createUserService } from '../../activities/intent/user-service.ts';
import { checkUserService } from '../../cli/intent/check.ts';
import { listen } from '../../dev/servers/ports.ts';
import type { UserServiceFailure, UserServiceStandIn } from '../../dev/stand-ins/intent/user-service.ts';
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import { startUserService } from '../../dev/stand-ins/intent/user-service.ts';
import { createLogger } from '../../workers/logger.ts';
import type { LogLine } from '../harness.ts';

/** Long enough to be reached only by what never ends. */
const PATIENT_MS = 20_000;
const IMPATIENT_MS = 50;
const NO_ANSWER = /^User Service did not answer: .+/;
/** Jest's realm has its own Error, which the client's plain `timed out` depends on. */
const TIMED_OUT = /^User Service did not answer: .*(timed out|due to timeout)$/;

const caller = createHttpCaller();
let standIn: UserServiceStandIn;
let users: UserService;
const servers: Server[] = [];
let logs: LogLine[];

const log = createLogger('debug', { write: (line: string) => void logs.push(JSON.parse(line) as LogLine) });
const clientOf = (baseUrl: string, timeoutMs = PATIENT_MS): UserService =>
  createUserService({ baseUrl, timeoutMs, caller, log });

beforeEach(async () => {
  logs = [];
  standIn = await startUserService();
  users = clientOf(standIn.url);
});

afterAll(() => caller.close());

afterEach(async () => {
  await standIn.stop();
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
});

/** Where a User Service answers in ways the stand-in has no script for. */
async function urlAnswering(listener: RequestListener): Promise<string> {
  const server = createServer(listener);
  servers.push(server);
  return `http://127.0.0.1:${await listen(server)}`;
}

async function failureOf(lookup: Promise<unknown>): Promise<UserServiceError> {
  const result = await lookup.catch((error: unknown) => error);
  if (!(result instanceof UserServiceError))
    throw new Error(`no UserServiceError but ${JSON.stringify(result)}`);
  return result;
}
/** How a look-up fails of a service that answers so. */
const failureWith = async (listener: RequestListener, timeoutMs?: number) =>
  (await failureOf(clientOf(await urlAnswering(listener), timeoutMs).findRecipient('user-1'))).message;
const recipient = (userId: string, email: string) => ({ userId, email, locale: 'en' });
const addressOf = (userId: string, email: string, preferredLanguage = 'en') =>
  standIn.setUser(userId, { email, preferredLanguage });

const askedFor = (): string[] => standIn.requests.map(({ userId }) => userId);

describe('answers', () => {
  test('I11 a known user is found with one look-up, and 404 subject_not_found says that there is no such user', async () => {
    expect(await users.findRecipient('user-1')).toEqual(recipient('user-1', 'ada.marlow@example.com'));
    expect(await users.findRecipient('nobody')).toBeUndefined();
    expect(askedFor()).toEqual(['user-1', 'nobody']);
  });

  test.each<[status: number, body: string, problem?: string]>([
    ...['', '<h1>subject_not_found</h1>', '{"error":{"code":"route_not_found","message":"m"}}'].map(notFound),
    ...['{"code":"subject_not_found"}', '{"error":{"code":"subject_not_found_here"}}'].map(notFound),
    ...[500, 502, 503, 429, 401, 400, 410, 204, 201, 301, 302].map(withoutBody),
    ...['null', '"text"', '', '{', '[]'].map(unusable('body')),
    ...['{}', '{"email":""}', '{"email":"no address"}'].map(unusable('email')),
  ])(
    'I11 status %i with the body %j is no answer about a user, and costs one request',
    async (status, body, problem = `answered with status ${status}`) => {
      let requests = 0;
      const message = await failureWith((_request, response) => {
        requests += 1;
        response.writeHead(status, { location: `${standIn.url}/api/v1/internal/users/user-1` }).end(body);
      });
      expect(message).toBe(`User Service ${problem}`);
      expect(requests).toBe(1);
      // A redirection is not followed.
      expect(askedFor()).toEqual([]);
    },
  );

  test('I11 what is no address is not used, and not repeated in the error', async () => {
    addressOf('user-1', 'ada@example.com\r\nBcc: eve@example.com');
    const failure = await failureOf(users.findRecipient('user-1'));
    expect(failure.message).toBe('User Service gave an unusable answer: email');
    expect(JSON.stringify(failure)).not.toContain('example.com');
  });

  test.each([' bob@example.com', 'bob@example.com\t', '\u200bbob@example.com\ufeff'])(
    'bug-P7 what stands around the address %j is taken off',
    async (email) => {
      addressOf('user-1', email);
      expect(await users.findRecipient('user-1')).toMatchObject({ email: 'bob@example.com' });
    },
  );

  test('I11 an answer larger than 64 KiB is not read to its end', async () => {
    addressOf('large', 'ada@example.com', 'x'.repeat(60_000));
    addressOf('larger', 'ada@example.com', 'x'.repeat(70_000));
    expect(await users.findRecipient('large')).toEqual(recipient('large', 'ada@example.com'));
    await expect(users.findRecipient('larger')).rejects.toThrow(
      'User Service gave an unusable answer: it is larger than 65536 bytes',
    );
  });

  test('I11 an endless answer is cut off', async () => {
    const cutOff = Promise.withResolvers<void>();
    const message = await failureWith((_request, response) => {
      response.once('close', cutOff.resolve).writeHead(200);
      const more = () =>
        void (response.writable && response.write('x'.repeat(16_384), () => setImmediate(more)));
      more();
    });
    expect(message).toContain('larger than 65536 bytes');
    await cutOff.promise;
  });
});

function withoutBody(status: number): [number, string] {
  return [status, ''];
}
function notFound(body: string): [number, string] {
  return [404, body];
}
function unusable(part: string) {
  return (body: string): [number, string, string] => [200, body, `gave an unusable answer: ${part}`];
}

describe('no answer', () => {
  test('I11 the time-out covers the body as well', async () => {
    const message = await failureWith((_request, response) => {
      response.writeHead(200).write('{"email":');
    }, IMPATIENT_MS);
    expect(message).toMatch(TIMED_OUT);
  });

  test('I11 a connection that is reset is worth another try', async () => {
    standIn.fail({ failure: { kind: 'reset' }, times: 1 });
    const failure = await failureOf(users.findRecipient('user-1'));
    expect(failure.message).toMatch(NO_ANSWER);
    expect(types.isNativeError(failure.cause)).toBe(true);
    expect(askedFor()).toEqual(['user-1']);
    expect(await users.findRecipient('user-1')).toBeDefined();
  });

  test('I11 a body that ends too soon, or a service that is away, is no answer', async () => {
    const message = await failureWith((_request, response) => {
      response
        .writeHead(200, { 'content-length': '1000' })
        .write('{"email":"ada@example.com"}', () => response.destroy());
    });
    expect(message).toMatch(NO_ANSWER);
    await standIn.stop();
    await expect(users.findRecipient('user-1')).rejects.toThrow(
      /^User Service did not answer: .*ECONNREFUSED/,
    );
  });
});

describe('ids', () => {
  test.each([
    ...['a/b c', '../user-1', '..%2Fuser-1', 'ü?x=1#f', '100%25', 'a@b', 'a+b&c;d', '👩‍🚀', ' ', '...'],
  ])('I11 the id %j reaches the service as it is', async (id) => {
    addressOf(id, 'someone@example.com');
    expect(await users.findRecipient(id)).toEqual(recipient(id, 'someone@example.com'));
    expect(askedFor()).toEqual([id]);
  });

  test.each(['', '.', '..', '\ud800', 'a\udc00'])(
    'I11 no user has the id %j, so the service is not asked',
    async (id) => {
      expect(await users.findRecipient(id)).toBeUndefined();
      expect(askedFor()).toEqual([]);
    },
  );

  test('I11 a base URL may have a path, and slashes at its end', async () => {
    const paths: (string | undefined)[] = [];
    const url = await urlAnswering((request, response) => {
      paths.push(`${request.method} ${request.url}`);
      response.writeHead(200).end('{"email":"ada@example.com"}');
    });
    expect(await clientOf(`${url}/users///`).findRecipient('a/b')).toBeDefined();
    expect(paths).toEqual(['GET /users/api/v1/internal/users/a%2Fb']);
  });
});

describe('breaker', () => {
  /** After so many failures in a row the service is left alone (activities/intent/user-service.ts). */
  const THRESHOLD = 10;
  const LEFT_ALONE =
    /^User Service is being left alone for another \d+ ms after repeated failures, the last: User Service answered with status 503$/;
  const outage: UserServiceFailure = { kind: 'status', status: 503 };
  const [realNow, realMonotonic] = [Date.now, performance.now.bind(performance)];
  let passedMs: number;

  /** Moves the clocks that pauses are measured with; nothing else of the test depends on them. */
  const letPass = (ms: number): void => void (passedMs += ms);

  beforeEach(() => {
    passedMs = 0;
    jest.spyOn(Date, 'now').mockImplementation(() => realNow() + passedMs);
    jest.spyOn(performance, 'now').mockImplementation(() => realMonotonic() + passedMs);
  });
  afterEach(() => jest.restoreAllMocks());

  /** Of users who are known; at the same time. */
  const lookUp = (count: number) =>
    Promise.all(Array.from({ length: count }, (_, n) => failureOf(users.findRecipient(`user-${n + 1}`))));

  /** One after the other. */
  async function lookUpInTurn(count: number): Promise<string[]> {
    const failures: string[] = [];
    for (let n = 1; n <= count; n += 1)
      failures.push((await failureOf(users.findRecipient(`user-${n}`))).message);
    return failures;
  }

  /** Fails as often as opens the breaker. */
  async function breakDown(failure = outage): Promise<void> {
    standIn.fail({ failure });
    await lookUpInTurn(THRESHOLD);
  }

  test('intent-P5 one user for whom the service always fails keeps it from no other', async () => {
    standIn.fail({ userId: 'user-1', failure: outage });
    for (let index = 0; index < THRESHOLD + 5; index += 1) await lookUp(1);
    expect(await users.findRecipient('user-2')).toBeDefined();
    expect(logs).toEqual([]);
  });

  test('I12 a service that is down gets a few requests, while hundreds of lookups fail immediately', async () => {
    standIn.fail({ failure: outage });

    const failures = await lookUpInTurn(THRESHOLD + 300);
    expect(new Set(failures.slice(0, THRESHOLD))).toEqual(new Set(['User Service answered with status 503']));
    // On a slow machine a pause may end meanwhile, and one lookup finds out that nothing has changed.
    const refused = failures.slice(THRESHOLD).filter((message) => LEFT_ALONE.test(message));
    expect(refused.length).toBeGreaterThan(290);
    expect(askedFor().length).toBeLessThan(THRESHOLD + 10);
    expect(logs[0]).toMatchObject({
      level: 'warn',
      msg: 'User Service is failing and left alone for a while',
      reason: 'User Service answered with status 503',
    });
  });

  test('intent-14 a clock that is set back an hour does not keep a healthy service closed', async () => {
    await breakDown();
    standIn.heal();
    jest.spyOn(Date, 'now').mockImplementation(() => realNow() - 3_600_000);
    letPass(1_001);
    expect(await users.findRecipient('user-1')).toBeDefined();
  });

  test('I12 after a pause one lookup tries for all; the pause doubles to 30 s and starts again after an answer', async () => {
    await breakDown();
    for (const pauseMs of [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]) {
      expect(logs.at(-1)).toMatchObject({ level: 'warn', pause_ms: expect.closeTo(pauseMs, -3) });
      letPass(pauseMs + 1);
      const before = askedFor().length;
      await lookUp(50);
      expect(askedFor().length - before).toBe(1);
    }

    standIn.heal();
    letPass(30_001);
    expect(await users.findRecipient('user-1')).toBeDefined();
    expect(logs.at(-1)).toMatchObject({ msg: 'User Service answers again' });
    await breakDown();
    expect(logs.at(-1)).toMatchObject({ pause_ms: expect.closeTo(1_000, -3) });
  });

  test.each<[string, UserServiceFailure]>([
    ['an unusable body', { kind: 'wrong-shape' }],
    ['a status that is about the request', { kind: 'status', status: 400 }],
    ['an unknown user', { kind: 'status', status: 404 }],
  ])('I12 %s concerns one user: it opens nothing and ends the count', async (_what, failure) => {
    standIn.fail({ failure: outage, times: THRESHOLD - 1 });
    standIn.fail({ failure, times: 2 * THRESHOLD });
    standIn.fail({ failure: outage, times: THRESHOLD - 1 });
    const total = 4 * THRESHOLD - 2;
    for (let n = 1; n <= total; n += 1) await users.findRecipient(`user-${n}`).catch(() => undefined);
    expect(await users.findRecipient('user-1')).toBeDefined();
    expect(askedFor()).toHaveLength(total + 1);
    expect(logs).toEqual([]);
  });

  test.each<[string, UserServiceFailure]>([
    ['status 500', { kind: 'status', status: 500 }],
    ['status 429', { kind: 'status', status: 429 }],
    ['a reset connection', { kind: 'reset' }],
    ['a time-out', holdAnswers().failure],
  ])('I12 %s is a failure of the service', async (_what, failure) => {
    users = clientOf(standIn.url, failure.kind === 'hold' ? IMPATIENT_MS : PATIENT_MS);
    await breakDown(failure);
    expect((await lookUp(1))[0]?.message).toContain('User Service is being left alone for another');
    // On a busy machine a time-out can come before its request.
    if (failure.kind === 'hold') expect(askedFor().length).toBeLessThanOrEqual(THRESHOLD);
    else expect(askedFor()).toHaveLength(THRESHOLD);
  });
});

describe('what doctor says', () => {
  const TIMEOUT_MS = 500;
  const UNKNOWN_USER = JSON.stringify({ error: { code: 'subject_not_found', message: 'nobody' } });
  const asked = async (answer: RequestListener, token?: string) =>
    checkUserService(`${await urlAnswering(answer)}/`, { token }, TIMEOUT_MS);
  const error = (detail: string) => ({ status: 'error', detail: expect.stringContaining(detail) as string });

  test('I40 it shows the token of the service, and says when it is refused', async () => {
    const guarded: RequestListener = ({ headers }, response) =>
      headers.authorization === 'Bearer of-this-service'
        ? response.writeHead(404).end(UNKNOWN_USER)
        : response.writeHead(401).end();
    expect(await asked(guarded, 'of-this-service')).toMatchObject({ status: 'ok' });
    expect(await asked(guarded, 'of-another')).toMatchObject({
      ...error('status 401'),
      hint: expect.stringContaining('NOTIFICATION_USER_SERVICE_TOKEN') as string,
    });
  });

  test('I40 it tells a User Service from what else may answer there', async () => {
    const says = async (status: number, body: string) =>
      (await asked((_, response) => response.writeHead(status).end(body))).status;
    expect(await says(404, UNKNOWN_USER)).toBe('ok');
    expect(await says(404, 'not found')).toBe('error');
    expect(await says(503, '')).toBe('error');
    expect(await asked(() => undefined)).toMatchObject(error('timed out'));
    expect(await checkUserService(undefined, {}, TIMEOUT_MS)).toMatchObject({ status: 'warn' });
  });
});
