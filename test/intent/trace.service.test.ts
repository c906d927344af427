/** The trace of a producer: the reader's span leads to it, and both outbound entries hand it on. */
import { eventually, slotOfTests } from '../harness.ts';
import { GATEWAY, MAIL, append } from '../service-process.ts';
import { turn } from './entries.ts';
import { entriesOf } from './rows.ts';

const [TRACE, SPAN] = ['4bf92f3577b34da6a3ce929d0e0e4736', '00f067aa0ba902b7'];
const TRACEPARENT = `00-${TRACE}-${SPAN}-01`;

interface PrintedSpan {
  name: string;
  links: { context: { traceId: string; spanId: string }; attributes: Record<string, unknown> }[];
}

const slot = slotOfTests();
let printed: jest.SpyInstance;
beforeAll(async () => {
  printed = jest.spyOn(console, 'dir').mockImplementation(() => undefined);
});
afterAll(async () => {
  printed.mockRestore();
});

/** The values of the traceparent field in what went out for an intent; undefined where it is absent. */
const handedOn = (id: string) =>
  eventually(`both outbound entries of ${id}`, async () => {
    const own = await Promise.all([GATEWAY, MAIL].map((stream) => entriesOf(slot, stream, `${id}/`)));
    return own.flat().length === 2 && own.flat().map(({ traceparent }) => traceparent?.toString());
  });

test('I77 a traceparent is linked where its intent is read, and handed on; without one, or with nonsense, nothing is', async () => {
  // Before the service starts, so that a reader finds them together.
  const [traced, plain, nonsense] = (await append(
    slot.redis,
    [TRACEPARENT, undefined, '"><script>'].map((traceparent, n) =>
      turn({ idempotency_key: `key-${n}`, recipient_user_ids_json: '["user-1"]', traceparent }),
    ),
  )) as [string, string, string];
  await slot.startService({ NOTIFICATION_OTEL_STDOUT_TRACES_ENABLED: 'true' });
  expect(await handedOn(traced)).toEqual([TRACEPARENT, TRACEPARENT]);
  expect(await handedOn(plain)).toEqual([undefined, undefined]);
  expect(await handedOn(nonsense)).toEqual([undefined, undefined]);

  const spans = await eventually('the spans of the reader', async () => {
    const all = printed.mock.calls.map(([span]) => span as PrintedSpan);
    const ofReader = all.filter(({ name }) => name === 'process intent');
    const linked = ofReader.flatMap(({ links }) =>
      links.map(({ attributes }) => attributes['notification_id']),
    );
    const isWhole = [traced, plain, nonsense].every((id) => linked.includes(id));
    return isWhole && all.some(({ name }) => name === 'StartWorkflow:notification') && ofReader;
  });
  const links = spans.flatMap(({ links: own }) => own);
  const contextOf = (id: string | null) =>
    links.find(({ attributes }) => attributes['notification_id'] === id)?.context;
  expect(contextOf(traced)).toMatchObject({ traceId: TRACE, spanId: SPAN });
  expect(contextOf(plain)).toMatchObject({ spanId: '0'.repeat(16) });
  expect(contextOf(nonsense)).toMatchObject({ spanId: '0'.repeat(16) });
});
