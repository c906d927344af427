/** The trace of a producer: the reader's span leads to it, and both outbound entries hand it on, in every way of working. */
import { newGameTurnReady, publishIntent } from '../../client/notificationintent.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';

const [TRACE, SPAN] = ['4bf92f3577b34da6a3ce929d0e0e4736', '00f067aa0ba902b7'];
const TRACEPARENT = `00-${TRACE}-${SPAN}-01`;

interface PrintedSpan {
  name: string;
  links: { context: { traceId: string; spanId: string }; attributes: Record<string, unknown> }[];
}

describe.each([
  ['child workflows', 'StartWorkflow:notification', { NOTIFICATION_ROUTE_DISPATCH: 'child' }],
  ['first attempts', 'StartWorkflow:notification', { NOTIFICATION_ROUTE_DISPATCH: 'on_failure' }],
])('with %s', (_way, start, env) => {
  let slot: Slot;
  let printed: jest.SpyInstance;
  beforeAll(async () => {
    printed = jest.spyOn(console, 'dir').mockImplementation(() => undefined);
    slot = await takeSlot();
  });
  afterAll(async () => {
    await slot.release();
    printed.mockRestore();
  });

  const publish = (key: string, traceparent?: string) =>
    publishIntent(
      slot.redis,
      newGameTurnReady({
        idempotencyKey: key,
        occurredAt: 1_790_000_000_000,
        recipientUserIds: ['user-1'],
        payload: { game_id: 'g', game_name: 'G', turn_number: 1 },
        ...(traceparent === undefined ? {} : { traceparent }),
      }),
    );

  /** The values of the traceparent field in what went out for an intent; undefined where it is absent. */
  const handedOn = (id: string) =>
    eventually(`both outbound entries of ${id}`, async () => {
      const streams = ['gateway:client-events', 'mail:delivery_commands'];
      const entries = await Promise.all(streams.map((stream) => slot.redis.xrange(stream, '-', '+')));
      const own = entries.flat().filter(([, fields]) => fields.some((value) => value.startsWith(`${id}/`)));
      const valueOf = (fields: string[]) =>
        fields.includes('traceparent') ? fields[fields.indexOf('traceparent') + 1] : undefined;
      return own.length === 2 && own.map(([, fields]) => valueOf(fields));
    });

  test('I77 a traceparent is linked where its intent is read, and handed on; without one, or with nonsense, nothing is', async () => {
    // Before the service starts, so that a reader finds them together.
    const traced = await publish('traced', TRACEPARENT);
    const plain = await publish('plain');
    const nonsense = await slot.redis.xadd(
      'notification:intents',
      '*',
      ...['notification_type', 'game.turn.ready', 'producer', 'game_master', 'audience_kind', 'user'],
      ...[
        'recipient_user_ids_json',
        '["user-1"]',
        'idempotency_key',
        'nonsense',
        'occurred_at_ms',
        '1790000000000',
      ],
      ...['payload_json', '{"game_id":"g","game_name":"G","turn_number":1}', 'traceparent', '"><script>'],
    );
    await slot.startService({ NOTIFICATION_OTEL_STDOUT_TRACES_ENABLED: 'true', ...env });
    expect(await handedOn(traced)).toEqual([TRACEPARENT, TRACEPARENT]);
    expect(await handedOn(plain)).toEqual([undefined, undefined]);
    expect(await handedOn(nonsense!)).toEqual([undefined, undefined]);

    const spans = await eventually('the spans of the reader', async () => {
      const all = printed.mock.calls.map(([span]) => span as PrintedSpan);
      const ofReader = all.filter(({ name }) => name === 'process intent');
      const linked = ofReader.flatMap(({ links }) =>
        links.map(({ attributes }) => attributes['notification_id']),
      );
      const isWhole = [traced, plain, nonsense].every((id) => linked.includes(id));
      return isWhole && all.some(({ name }) => name === start) && ofReader;
    });
    const links = spans.flatMap(({ links: own }) => own);
    const contextOf = (id: string | null) =>
      links.find(({ attributes }) => attributes['notification_id'] === id)?.context;
    expect(contextOf(traced)).toMatchObject({ traceId: TRACE, spanId: SPAN });
    expect(contextOf(plain)).toMatchObject({ spanId: '0'.repeat(16) });
    expect(contextOf(nonsense)).toMatchObject({ spanId: '0'.repeat(16) });
  });
});
