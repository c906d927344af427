/** What the adapter toward routers makes of every kind of answer: each command has its own, or its own error. */
import type { RouterFailure } from '../../dev/stand-ins/subscription/router-desk.ts';
import type { RouterAdapter } from './router-adapter.ts';
import { outcomesById, startRouterAdapter } from './router-adapter.ts';

let adapter: RouterAdapter;

beforeEach(async () => {
  adapter = await startRouterAdapter();
});
afterEach(() => adapter.stop());

describe('answers', () => {
  test.each<[string, RouterFailure, string]>([
    ['an error', { kind: 'error', code: 'QUOTA' }, 'SMP QUOTA'],
    ['an error that the router names INTERNAL', { kind: 'error', code: 'INTERNAL' }, 'SMP INTERNAL'],
    ['the answer to another command', { kind: 'answer', answer: { op: 'PONG' } }, 'BROKER UNEXPECTED'],
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
