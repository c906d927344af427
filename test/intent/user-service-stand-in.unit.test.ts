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
