/** What `doctor` says of the User Service: it is asked as the service asks it. */
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { checkUserService } from '../../cli/intent/check.ts';

const TIMEOUT_MS = 500;
const UNKNOWN_USER = JSON.stringify({ error: { code: 'subject_not_found', message: 'nobody' } });

async function asked(
  answer: (request: IncomingMessage, response: ServerResponse) => void,
  token?: string,
): Promise<Awaited<ReturnType<typeof checkUserService>>> {
  const server = createServer(answer);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  try {
    return await checkUserService(`http://127.0.0.1:${port}/`, { token }, TIMEOUT_MS);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

test('I40 doctor shows the User Service the token of the service, and says when it is refused', async () => {
  const guarded = ({ headers }: IncomingMessage, response: ServerResponse) =>
    headers.authorization === 'Bearer of-this-service'
      ? response.writeHead(404).end(UNKNOWN_USER)
      : response.writeHead(401).end();
  expect(await asked(guarded, 'of-this-service')).toMatchObject({ status: 'ok' });
  expect(await asked(guarded, 'of-another')).toMatchObject({
    status: 'error',
    detail: expect.stringContaining('status 401') as string,
    hint: expect.stringContaining('NOTIFICATION_USER_SERVICE_TOKEN') as string,
  });
});

test('I40 doctor tells a User Service from what else may answer there', async () => {
  const says = (status: number, body: string) =>
    asked((_, response) => response.writeHead(status).end(body)).then((found) => found.status);
  expect(await says(404, UNKNOWN_USER)).toBe('ok');
  expect(await says(404, 'not found')).toBe('error');
  expect(await says(503, '')).toBe('error');
  expect(await asked(() => undefined)).toMatchObject({
    status: 'error',
    detail: expect.stringContaining('timed out') as string,
  });
  expect(await checkUserService(undefined, {}, TIMEOUT_MS)).toMatchObject({ status: 'warn' });
});
