import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import { startUserService, type UserServiceStandIn } from '../../dev/stand-ins/intent/user-service.ts';

describe('stand-in User Service', () => {
  let service: UserServiceStandIn;

  beforeEach(async () => {
    service = await startUserService();
  });

  afterEach(() => service.stop());

  const lookUp = (id: string): Promise<Response> =>
    fetch(`${service.url}/api/v1/internal/users/${encodeURIComponent(id)}`);

  test('answers a look-up with mail and language', async () => {
    const response = await lookUp('user-2');

    expect(response.status).toBe(200);
    expect(await response.json()).toEqual({
      user_id: 'user-2',
      email: 'jonas.keller@example.com',
      preferred_language: 'de',
    });
  });

  test('answers 404 subject_not_found for an unknown user', async () => {
    const response = await lookUp('unknown');

    expect(response.status).toBe(404);
    expect(await response.json()).toEqual({
      error: { code: 'subject_not_found', message: 'user unknown does not exist' },
    });
  });

  test.each([
    ['user-13', 200],
    ['user-20000', 200],
    ['user-20001', 404],
    ['user-0', 404],
    ['user-013', 404],
  ])('numbered user %s: %i', async (id, status) => {
    expect((await lookUp(id)).status).toBe(status);
  });

  test('adds and removes users, numbered ones too', async () => {
    service.setUser('a/b c', { email: 'someone@example.com', preferredLanguage: '' });
    service.removeUser('user-123');

    expect(await (await lookUp('a/b c')).json()).toMatchObject({ email: 'someone@example.com' });
    expect((await lookUp('user-123')).status).toBe(404);
  });

  test('records the look-ups in order', async () => {
    await lookUp('user-1');
    await lookUp('unknown');

    expect(service.requests.map(({ userId }) => userId)).toEqual(['user-1', 'unknown']);
  });

  test.each([500, 503])('fails with status %i as often as told, then answers again', async (status) => {
    service.fail({ failure: { kind: 'status', status }, times: 2 });

    const statuses = [await lookUp('user-1'), await lookUp('user-2'), await lookUp('user-1')];
    expect(statuses.map((response) => response.status)).toEqual([status, status, 200]);
  });

  test('fails for one user until healed', async () => {
    service.fail({ failure: { kind: 'status', status: 404 }, userId: 'user-1' });

    const failed = await lookUp('user-1');
    expect(await failed.json()).toMatchObject({ error: { code: 'subject_not_found' } });
    expect((await lookUp('user-2')).status).toBe(200);
    service.heal();
    expect((await lookUp('user-1')).status).toBe(200);
  });

  test('resets the connection', async () => {
    service.fail({ failure: { kind: 'reset' } });

    await expect(lookUp('user-1')).rejects.toThrow('fetch failed');
  });

  test('answers with broken JSON and with JSON of the wrong shape', async () => {
    service.fail({ failure: { kind: 'invalid-json' }, times: 1 });
    service.fail({ failure: { kind: 'wrong-shape' }, times: 1 });

    await expect((await lookUp('user-1')).json()).rejects.toThrow('JSON');
    expect(await (await lookUp('user-1')).json()).toMatchObject({ email: null });
  });

  test('holds an answer until it is released', async () => {
    const answers = holdAnswers();
    service.fail({ failure: answers.failure, times: 1 });

    const order: string[] = [];
    const held = lookUp('user-1').then(({ status }) => order.push(`held ${status}`));
    await answers.arrived;
    order.push(`other ${(await lookUp('user-1')).status}`);
    answers.release();
    await held;

    expect(order).toEqual(['other 200', 'held 200']);
  });

  test('stops immediately while an answer is held', async () => {
    const answers = holdAnswers();
    service.fail({ failure: answers.failure });
    const pending = lookUp('user-1').catch((error: Error) => error.message);
    await answers.arrived;

    await service.stop();

    expect(await pending).toBe('fetch failed');
  });

  test.each([
    ['POST', '/api/v1/internal/users/user-1', 405],
    ['GET', '/api/v1/internal/users/', 404],
    ['GET', '/', 404],
    ['GET', '/api/v1/internal/users/%zz', 400],
  ])('%s %s: %i', async (method, path, status) => {
    expect((await fetch(service.url + path, { method })).status).toBe(status);
  });
});
