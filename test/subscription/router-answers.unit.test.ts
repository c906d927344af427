/** What the adapter toward routers makes of every kind of answer: each command has its own, or its own error. */
import type { RouterFailure } from '../../dev/stand-ins/subscription/router-desk.ts';
import type { RouterAdapter } from './router-adapter.ts';
import { SUBSCRIPTION_IDS, outcomesById, startRouterAdapter, tokenAt } from './router-adapter.ts';
import { outcomeOf } from './router-agent.ts';

let adapter: RouterAdapter;

beforeEach(async () => {
  adapter = await startRouterAdapter();
});
afterEach(() => adapter.stop());

describe('answers', () => {
  test.each<[string, RouterFailure, string]>([
    ['an error', { kind: 'error', code: 'QUOTA' }, 'SMP QUOTA'],
    ['an error that the router names INTERNAL', { kind: 'error', code: 'INTERNAL' }, 'SMP INTERNAL'],
    ['no answer to it', { kind: 'omit' }, 'BROKER TRANSPORT'],
    ['a line that is no JSON', { kind: 'line', line: '<html>' }, 'BROKER RESPONSE'],
    ['JSON that is no answer', { kind: 'line', line: '[1]' }, 'BROKER RESPONSE'],
    ['an answer to nobody', { kind: 'line', line: '{"id":"77","answer":{"op":"OK"}}' }, 'BROKER RESPONSE'],
    ['an unknown answer', { kind: 'answer', answer: { op: 'WHAT' } }, 'BROKER RESPONSE'],
    ['the answer to another command', { kind: 'answer', answer: { op: 'PONG' } }, 'BROKER UNEXPECTED'],
    [
      'an answer of the wrong shape',
      { kind: 'answer', answer: { op: 'IDS', recipientId: 7 } },
      'BROKER RESPONSE',
    ],
    ['an error without a code', { kind: 'answer', answer: { op: 'ERR' } }, 'BROKER RESPONSE'],
  ])('N2 %s is that of one item; its siblings have theirs', async (_what, failure, expected) => {
    const queues = await adapter.makeQueues(adapter.smp.address, 3);
    adapter.smp.fail({ failure, subject: `NDEL ${queues[1]!.recipientId}` });

    expect(outcomesById(await adapter.messaging.deleteNotifierKeys(queues))).toEqual({
      c0: 'ok',
      c1: expected,
      c2: 'ok',
    });
  });

  test.each([
    [500, 'BROKER NETWORK'],
    [503, 'BROKER NETWORK'],
    [429, 'BROKER NETWORK'],
    [404, 'BROKER UNEXPECTED'],
    [204, 'BROKER UNEXPECTED'],
  ])('N2 status %i fails the batch as %s', async (status, expected) => {
    const queues = await adapter.makeQueues(adapter.smp.address, 2);
    adapter.smp.fail({ failure: { kind: 'status', status, body: 'no' }, times: 1 });

    expect(outcomesById(await adapter.messaging.deleteNotifierKeys(queues))).toEqual({
      c0: expected,
      c1: expected,
    });
  });

  test('N2 nothing is followed elsewhere', async () => {
    let requests = 0;
    const address = await adapter.answeringCommands((_request, response) => {
      requests += 1;
      response.writeHead(307, { location: `${adapter.ntf.url}/ntf/commands` }).end();
    });

    expect(outcomeOf(await adapter.notifications.checkToken(tokenAt(address)))).toBe('BROKER UNEXPECTED');
    expect(requests).toBe(1);
    expect(adapter.ntf.calls).toEqual([]);
  });

  test('N2 an endless answer is cut off', async () => {
    let cutOff: () => void = () => undefined;
    const ended = new Promise<void>((resolve) => (cutOff = resolve));
    const address = await adapter.answeringCommands((_request, response) => {
      response.once('close', cutOff).writeHead(200);
      const more = () =>
        void (response.writable && response.write('x'.repeat(16_384), () => setImmediate(more)));
      more();
    });

    const result = await adapter.notifications.checkSubscriptions(tokenAt(address), SUBSCRIPTION_IDS);
    expect(result.map(outcomeOf)).toEqual(Array(3).fill('BROKER RESPONSE'));
    await ended;
  });

  test('N2 endless short lines are cut off too', async () => {
    const address = await adapter.answeringCommands((_request, response) => {
      response.writeHead(200);
      const more = () =>
        void (response.writable && response.write('{}\n'.repeat(5_000), () => setImmediate(more)));
      more();
    });

    expect(outcomeOf(await adapter.notifications.checkToken(tokenAt(address)))).toBe('BROKER RESPONSE');
  });

  test('N2 the first answer to a command counts, and those before a broken one', async () => {
    const address = await adapter.answeringCommands((_request, response) => {
      response.write('{"id":"1","answer":{"op":"SUB","status":"ACTIVE"}}\n');
      response.write('{"id":"1","answer":{"op":"SUB","status":"END"}}\n');
      response.write('{"id":"2","answer":{"op":"SUB","status":"ERR no such thing"}}\n');
      response.end('{"id":"3","answer":{"op":"SUB","stat');
    });

    const results = await adapter.notifications.checkSubscriptions(tokenAt(address), SUBSCRIPTION_IDS);
    expect(results.map((result) => (result.ok ? result.value : outcomeOf(result)))).toEqual([
      'ACTIVE',
      'ERR no such thing',
      'BROKER RESPONSE',
    ]);
  });

  test('N2 answers come in the order of the questions, whatever order they had', async () => {
    const address = await adapter.answeringCommands((_request, response) => {
      const lines = ['3', '1', '2'].map((id) => `{"id":"${id}","answer":{"op":"SUB","status":"ERR ${id}"}}`);
      response.end(lines.join('\n'));
    });

    const results = await adapter.notifications.checkSubscriptions(tokenAt(address), SUBSCRIPTION_IDS);
    expect(results.map((result) => result.ok && result.value)).toEqual(['ERR 1', 'ERR 2', 'ERR 3']);
  });

  test.each(['', '{}', '[]', '{"protocol":"smp","min":1,"max":3}', 'x'.repeat(10_000)])(
    'N2 a handshake that is none fails the batch',
    async (body) => {
      const address = await adapter.serverAnswering((_request, response) => response.end(body));

      const results = await adapter.notifications.checkSubscriptions(tokenAt(address), SUBSCRIPTION_IDS);
      expect(results.map(outcomeOf)).toEqual(Array(3).fill('BROKER RESPONSE'));
    },
  );

  test.each([
    ['INTERNAL', 'a\0b\nc\ud800', 'INTERNAL', undefined],
    ['CMD', '{"privateKey":"c2VjcmV0"}', 'CMD', undefined],
    ['CMD', 'SYNTAX', 'CMD', 'SYNTAX'],
    ['SECRETSPELTINCAPITALS', undefined, 'UNKNOWN', undefined],
  ])("subscription-B9 of a router's own words only those of the protocol stay: %s %j", async (...words) => {
    const [code, detail, knownCode, knownDetail] = words;
    const token = await adapter.makeToken(adapter.ntf.address);
    adapter.ntf.fail({ failure: { kind: 'error', code, ...(detail === undefined ? {} : { detail }) } });

    expect(await adapter.notifications.checkToken(token)).toEqual({
      ok: false,
      error: {
        source: 'NTF',
        code: knownCode,
        ...(knownDetail === undefined ? {} : { detail: knownDetail }),
      },
    });
  });
});
