/** HTTP exchanges whose answer the client itself does not take. */
import { createServer } from 'node:net';
import { createHttpCaller, deliver, retryWaitMs } from '../../activities/http/caller.ts';
import { given } from '../../api/given.ts';
import { DEVELOPMENT_SIGNING_SECRET } from '../../config/caller.ts';
import { listen } from '../../dev/servers/ports.ts';

const caller = createHttpCaller({ token: 'caller-token', signingSecrets: [DEVELOPMENT_SIGNING_SECRET] });
afterAll(() => caller.close());

test.each([
  [
    'S1 an answer that the HTTP client stumbles over is a failure with one line of reason',
    ['HTTP/1.1 OK 200\r\n\r\n'],
    { kind: 'failed', message: expect.stringMatching(/^[^\p{Cc}]+$/u) as string },
  ],
  [
    'bug-P13 a 100 Continue that was not asked for is passed over',
    [
      'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n',
      'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}',
    ],
    undefined,
  ],
])('%s', async (_, answer, expected) => {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => {
      for (const part of answer) socket.write(part);
      socket.end();
    });
  });
  const port = await listen(server);
  try {
    const failure = await deliver({
      ...{ method: 'PUT', body: '{}', timeoutMs: 5_000, caller, id: 'symbols_1' },
      url: `http://127.0.0.1:${port}`,
      stopped: new AbortController().signal,
    });
    expect(failure).toEqual(expected && expect.objectContaining(expected));
  } finally {
    server.close();
  }
});

test.each([
  [1, undefined, 100],
  [9, undefined, 900],
  [1, 300, 300],
  [2, 300, 500],
  [1, 3_600_000, 900],
])('bug-P14 after %d failures and Retry-After %s ms: %d ms', (failures, retryAfterMs, waitMs) => {
  const failure = { kind: 'refused', message: 'status 429', ...given({ retryAfterMs }) } as const;
  expect(retryWaitMs(failure as never, failures, [100, 500, 900])).toBe(waitMs);
});
