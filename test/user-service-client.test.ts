/** The client of the User Service (seed "Recipient Enrichment And Locale Policy"), against the stand-in. */
import { once } from 'node:events';
import type { RequestListener, Server } from 'node:http';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { types } from 'node:util';
import type { UserService } from '../activities/user-service.ts';
import { UserServiceError, createUserService } from '../activities/user-service.ts';
import type { UserServiceFailure, UserServiceStandIn } from '../dev/user-service.ts';
import { startUserService } from '../dev/user-service.ts';

/** Long enough to be reached only by what never ends. */
const PATIENT_MS = 20_000;
const IMPATIENT_MS = 50;
/** Jest's realm has its own Error, which the client's plain `timed out` depends on. */
const TIMED_OUT = /^User Service did not answer: .*(timed out|due to timeout)$/;

let standIn: UserServiceStandIn;
let users: UserService;
let server: Server | undefined;

beforeEach(async () => {
  standIn = await startUserService();
  users = createUserService({ baseUrl: standIn.url, timeoutMs: PATIENT_MS });
});

afterEach(async () => {
  await standIn.stop();
  server?.closeAllConnections();
  server?.close();
  server = undefined;
});

/** A User Service that answers in ways the stand-in has no script for. */
async function serviceAnswering(listener: RequestListener, timeoutMs = PATIENT_MS): Promise<UserService> {
  server = createServer(listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return createUserService({
    baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    timeoutMs,
  });
}

async function failureOf(lookup: Promise<unknown>): Promise<UserServiceError> {
  const result = await lookup.catch((error: unknown) => error);
  if (!(result instanceof UserServiceError))
    throw new Error(`no UserServiceError but ${JSON.stringify(result)}`);
  return result;
}

const askedFor = (): string[] => standIn.requests.map(({ userId }) => userId);

describe('answers', () => {
  test('I11 a known user is found with one look-up', async () => {
    expect(await users.findRecipient('user-1')).toEqual({
      userId: 'user-1',
      email: 'ada.marlow@example.com',
      locale: 'en',
    });
    expect(askedFor()).toEqual(['user-1']);
  });

  test('I11 404 subject_not_found says that there is no such user', async () => {
    expect(await users.findRecipient('nobody')).toBeUndefined();
    expect(askedFor()).toEqual(['nobody']);
  });

  test('I11 another 404 says nothing about the user', async () => {
    const misrouted = createUserService({ baseUrl: `${standIn.url}/elsewhere`, timeoutMs: PATIENT_MS });

    expect((await failureOf(misrouted.findRecipient('user-1'))).message).toBe(
      'User Service answered with status 404',
    );
    expect(askedFor()).toEqual([]);
  });

  test.each([
    ['an empty body', ''],
    ['HTML', '<h1>subject_not_found</h1>'],
    ['another code', '{"error":{"code":"route_not_found","message":"m"}}'],
    ['the code elsewhere', '{"code":"subject_not_found"}'],
    ['a longer code', '{"error":{"code":"subject_not_found_here"}}'],
  ])('I11 a 404 with %s is no missing user', async (_what, body) => {
    const service = await serviceAnswering((_request, response) => response.writeHead(404).end(body));

    expect((await failureOf(service.findRecipient('user-1'))).message).toBe(
      'User Service answered with status 404',
    );
  });

  test.each([500, 502, 503, 429, 401, 400, 410])('I11 status %i is worth another try', async (status) => {
    standIn.fail({ failure: { kind: 'status', status }, times: 1 });

    expect((await failureOf(users.findRecipient('user-1'))).message).toBe(
      `User Service answered with status ${status}`,
    );
    expect(await users.findRecipient('user-1')).toBeDefined();
    expect(askedFor()).toEqual(['user-1', 'user-1']);
  });

  test.each([204, 201, 301, 302])('I11 status %i is no answer, and nothing is followed', async (status) => {
    let requests = 0;
    const service = await serviceAnswering((_request, response) => {
      requests += 1;
      response.writeHead(status, { location: `${standIn.url}/api/v1/internal/users/user-1` }).end();
    });

    expect((await failureOf(service.findRecipient('user-1'))).message).toBe(
      `User Service answered with status ${status}`,
    );
    expect(requests).toBe(1);
    expect(askedFor()).toEqual([]);
  });

  test.each<[string, UserServiceFailure, string]>([
    ['broken JSON', { kind: 'invalid-json' }, 'User Service gave an unusable answer: body'],
    ['JSON of another shape', { kind: 'wrong-shape' }, 'User Service gave an unusable answer: email'],
  ])('I11 %s is worth another try, and one request is all it costs', async (_what, failure, message) => {
    standIn.fail({ failure, times: 1 });

    expect((await failureOf(users.findRecipient('user-1'))).message).toBe(message);
    expect(askedFor()).toEqual(['user-1']);
  });

  test.each(['[]', 'null', '"text"', '{}', '{"email":""}', '{"email":"no address"}', ''])(
    'I11 the body %j is no user',
    async (body) => {
      const service = await serviceAnswering((_request, response) => response.writeHead(200).end(body));

      expect((await failureOf(service.findRecipient('user-1'))).message).toMatch(
        /^User Service gave an unusable answer: (body|email)$/,
      );
    },
  );

  test.each([
    'ada@example.com,eve@example.com',
    'Ada <ada@example.com>',
    'ada@example.com\r\nBcc: eve@example.com',
  ])('I11 the address %j is not used and not repeated in the error', async (email) => {
    standIn.setUser('user-1', { email, preferredLanguage: 'en' });

    const failure = await failureOf(users.findRecipient('user-1'));
    expect(failure.message).toBe('User Service gave an unusable answer: email');
    expect(JSON.stringify(failure)).not.toContain('example.com');
  });

  test('I11 an answer larger than 64 KiB is not read to its end', async () => {
    const language = (length: number) => ({
      email: 'ada@example.com',
      preferredLanguage: 'x'.repeat(length),
    });
    standIn.setUser('large', language(60_000));
    standIn.setUser('larger', language(70_000));

    expect(await users.findRecipient('large')).toEqual({
      userId: 'large',
      email: 'ada@example.com',
      locale: 'en',
    });
    expect((await failureOf(users.findRecipient('larger'))).message).toBe(
      'User Service did not answer: answer is larger than 65536 bytes',
    );
  });

  test('I11 an endless answer is cut off', async () => {
    let cutOff: () => void = () => undefined;
    const ended = new Promise<void>((resolve) => (cutOff = resolve));
    const service = await serviceAnswering((_request, response) => {
      response.once('close', cutOff).writeHead(200);
      const more = () =>
        void (response.writable && response.write('x'.repeat(16_384), () => setImmediate(more)));
      more();
    });

    expect((await failureOf(service.findRecipient('user-1'))).message).toContain('larger than 65536 bytes');
    await ended;
  });
});

describe('no answer', () => {
  test('I11 an answer that comes too late is a time-out', async () => {
    standIn.fail({ failure: { kind: 'delay', ms: 1_000 } });
    const impatient = createUserService({ baseUrl: standIn.url, timeoutMs: IMPATIENT_MS });

    expect((await failureOf(impatient.findRecipient('user-1'))).message).toMatch(TIMED_OUT);
    expect(askedFor()).toEqual(['user-1']);
  });

  test('I11 the time-out covers the body as well', async () => {
    const service = await serviceAnswering((_request, response) => {
      response.writeHead(200).write('{"email":');
    }, IMPATIENT_MS);

    expect((await failureOf(service.findRecipient('user-1'))).message).toMatch(TIMED_OUT);
  });

  test('I11 a connection that is reset is worth another try', async () => {
    standIn.fail({ failure: { kind: 'reset' }, times: 1 });

    const failure = await failureOf(users.findRecipient('user-1'));
    expect(failure.message).toMatch(/^User Service did not answer: .+/);
    expect(types.isNativeError(failure.cause)).toBe(true);
    expect(askedFor()).toEqual(['user-1']);
    expect(await users.findRecipient('user-1')).toBeDefined();
  });

  test('I11 a body that ends too soon is no answer', async () => {
    const service = await serviceAnswering((_request, response) => {
      response
        .writeHead(200, { 'content-length': '1000' })
        .write('{"email":"ada@example.com"}', () => response.destroy());
    });

    expect((await failureOf(service.findRecipient('user-1'))).message).toMatch(
      /^User Service did not answer: .+/,
    );
  });

  test('I11 a service that is away is no answer', async () => {
    await standIn.stop();

    expect((await failureOf(users.findRecipient('user-1'))).message).toMatch(
      /^User Service did not answer: .*ECONNREFUSED/,
    );
  });
});

describe('ids', () => {
  test.each([
    'a/b c',
    '../user-1',
    '..%2Fuser-1',
    'ü?x=1#f',
    '日本',
    '%',
    '100%25',
    'a@b',
    'a+b&c;d',
    '👩‍🚀',
    ' ',
    '...',
    '\u007f',
  ])('I11 the id %j reaches the service as it is', async (id) => {
    standIn.setUser(id, { email: 'someone@example.com', preferredLanguage: 'en' });

    expect(await users.findRecipient(id)).toEqual({ userId: id, email: 'someone@example.com', locale: 'en' });
    expect(askedFor()).toEqual([id]);
  });

  test.each(['', '.', '..', '\ud800', 'a\udc00'])(
    'I11 no user has the id %j, so nobody is asked',
    async (id) => {
      expect(await users.findRecipient(id)).toBeUndefined();
      expect(askedFor()).toEqual([]);
    },
  );

  test.each(['/', '///'])('I11 a base URL may end in %s', async (end) => {
    const service = createUserService({ baseUrl: standIn.url + end, timeoutMs: PATIENT_MS });

    expect(await service.findRecipient('user-1')).toBeDefined();
    expect(askedFor()).toEqual(['user-1']);
  });

  test('I11 a base URL may have a path', async () => {
    const paths: (string | undefined)[] = [];
    await serviceAnswering((request, response) => {
      paths.push(`${request.method} ${request.url}`);
      response.writeHead(200).end('{"email":"ada@example.com"}');
    });
    const { port } = server!.address() as AddressInfo;
    const service = createUserService({ baseUrl: `http://127.0.0.1:${port}/users/`, timeoutMs: PATIENT_MS });

    expect(await service.findRecipient('a/b')).toBeDefined();
    expect(paths).toEqual(['GET /users/api/v1/internal/users/a%2Fb']);
  });
});

describe('locale', () => {
  test.each(['en', 'EN', 'en-US', 'en_GB', 'de', 'pt-BR', '', ' en', 'not a language'])(
    'I13 the preference %j leads to en, the one locale there is',
    async (preferredLanguage) => {
      standIn.setUser('user-1', { email: 'ada@example.com', preferredLanguage });

      expect(await users.findRecipient('user-1')).toMatchObject({ locale: 'en' });
    },
  );

  test.each([
    '{"email":"ada@example.com"}',
    '{"email":"ada@example.com","preferred_language":null}',
    '{"email":"ada@example.com","preferred_language":7}',
    '{"email":"ada@example.com","preferred_language":["en"],"further":"fields"}',
  ])('I13 a bad language keeps nobody from getting mail: %s', async (body) => {
    const service = await serviceAnswering((_request, response) => response.writeHead(200).end(body));

    expect(await service.findRecipient('user-1')).toEqual({
      userId: 'user-1',
      email: 'ada@example.com',
      locale: 'en',
    });
  });
});
