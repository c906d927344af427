/**
 * The judges of the fault suite (faults/ledger): of what this product's own encoders write they have nothing to say, as each run
 * shows, and whatever is changed in it they see.
 */
import { mailEntryFields, gatewayEntryFields } from '../../api/intent/outbound-entries.ts';
import { mobileMessage } from '../../api/mobile-push/message.ts';
import type { Posting, Told } from '../../faults/ledger/account.ts';
import type { AccountInput } from '../../faults/ledger/account-callback.ts';
import { HOUR, expectationsOf, judgeCallbacks, periodsOf } from '../../faults/ledger/account-callback.ts';
import type { Sighting, World } from '../../faults/ledger/deliveries.ts';
import { recipientsOf } from '../../faults/ledger/deliveries.ts';
import { excuseOf, lateOf, lengthOf } from '../../faults/ledger/excuse.ts';
import type { SentIntent } from '../../faults/ledger/intent-entries.ts';
import { entryOf } from '../../faults/ledger/intent-entries.ts';
import type { IntentCase } from '../../faults/ledger/intent.ts';
import { judgeIntents } from '../../faults/ledger/intent.ts';
import type { FcmRequest, MobileCase, SentJob } from '../../faults/ledger/mobile-push.ts';
import { bodyOf, judgeMobilePushes } from '../../faults/ledger/mobile-push.ts';
import { CHANNELS, TYPES, WINDOW_MS, payloadOf } from '../../faults/ledger/notification-types.ts';
import type { OutcomeCase, ToldOutcome } from '../../faults/ledger/outcomes.ts';
import { judgeOutcomes } from '../../faults/ledger/outcomes.ts';
import { disagreements, judgeSubscriptions } from '../../faults/ledger/subscription.ts';
import { judgeSymbols } from '../../faults/ledger/symbol-config.ts';
import type { Verdict } from '../../faults/ledger/verdict.ts';
import { CHARGES } from '../../faults/ledger/verdict.ts';
import { NOTIFICATION_TYPES, encodePushPayload, parseIntent, specOf } from '../intent/galaxy.ts';

const NOW = 1_800_000_000_000;
const chargesOf = (verdict: Verdict) => CHARGES.filter((charge) => verdict[charge].length > 0);
const posted = <Content>(content: Content, ...told: Told[]): Posting<Content> => ({
  content,
  attempts: told.map((one, index) => ({ beganAt: NOW + index, toldAt: NOW + index + 1, told: one })),
});
const acknowledged = (id: string): Told => ({ kind: 'acknowledged', id });

describe('intents', () => {
  const userOf = (id: string, preferredLanguage: string) =>
    [id, { email: `${id}@example.com`, preferredLanguage }] as const;
  const world: World = {
    users: new Map([userOf('a', 'de'), userOf('b', 'en')]),
    admins: ['one@example.com', 'two@example.com'],
  };
  const addressOf = (ref: string) =>
    world.users.get(ref.slice('user:'.length))?.email ?? ref.slice('email:'.length);
  const all = NOTIFICATION_TYPES.flatMap((type) => specOf(type).audiences.map((a) => [type, a] as const));

  function sentOf(index: number): SentIntent {
    const [type, audience] = all[index % all.length]!;
    const mark = `mark-${index}`;
    return {
      ...{ mark, type, audience, key: `key-${index}`, occurredAtMs: NOW, fate: 'delivered' },
      recipients: audience === 'user' ? ['a', 'b'] : [],
      payload: { ...payloadOf(type, mark, index), mark },
      ...(index % 2 === 0 ? { requestId: 'r' } : {}),
    };
  }

  /** What this product makes of an intent, by its own parser and encoders. @param window of a digest, ends with the intent. */
  function delivered(sent: SentIntent, notificationId: string, window = [sent]) {
    const entry = entryOf(sent).map(([name, value]) => [Buffer.from(name), Buffer.from(value)] as const);
    const parsed = parseIntent(notificationId, entry);
    if (!parsed.ok) throw new Error(parsed.malformed.failureMessage);
    const { notificationType, payloadJson } = parsed.intent;
    const payload = JSON.parse(payloadJson) as Record<string, unknown>;
    const { channels: byAudience, collapse } = TYPES[sent.type]!;
    const digest = collapse === 'digest' && { items: window.map((one) => one.payload), items_omitted: 0 };
    const common = { notificationId, requestId: sent.requestId, traceId: undefined };
    const encoders = {
      push: (recipientRef: string, routeId: string) => [
        ...gatewayEntryFields({
          ...{ ...common, routeId, notificationType, recipientRef },
          payloadBytes: encodePushPayload(notificationType, payload),
        }),
        ...(digest ? [['item_count', String(window.length)] as const] : []),
      ],
      email: (recipientRef: string, routeId: string) =>
        mailEntryFields({
          ...{ ...common, routeId, templateId: notificationType, locale: 'en', acceptedAtMs: NOW + 5 },
          email: addressOf(recipientRef),
          payloadJson: JSON.stringify({ ...sent.payload, ...digest }),
        }),
    };
    const sightings: Sighting[] = [];
    const routes: [string, string][] = [];
    for (const recipientRef of recipientsOf(sent, world))
      for (const channel of CHANNELS) {
        const routeId = `${channel}:${recipientRef}`;
        const isWanted = byAudience[sent.audience]!.includes(channel);
        routes.push([`${notificationId}/${routeId}`, isWanted ? 'published' : 'skipped']);
        if (!isWanted) continue;
        const fields = encoders[channel](recipientRef, routeId);
        sightings.push({
          ...{ channel, entryId: `${NOW + WINDOW_MS}-${sightings.length}`, seenAt: NOW + 10 },
          fields: fields.map(([name, value]) => [name, Buffer.from(value)]),
        });
      }
    return { id: notificationId, sightings, routes };
  }

  const valueOf = ({ fields }: Sighting, ...names: string[]) =>
    fields.find(([name]) => names.includes(name))![1].toString();
  /** What rows say of entries: as which each route was handed off. */
  const entriesOf = (sightings: readonly Sighting[]) =>
    new Map(sightings.map((one) => [valueOf(one, 'event_id', 'delivery_id'), one.entryId]));
  const idOf = (index: number) => `${NOW + index}-0`;
  /** @param arrived which of them arrive; the routes of the others are skipped. */
  function caseOf(
    sent: readonly SentIntent[],
    made: readonly ReturnType<typeof delivered>[],
    arrived: readonly number[] = [...sent.keys()],
  ): IntentCase {
    const sightings = arrived.flatMap((nth) => made[nth]!.sightings);
    const routes = made.flatMap((one, nth) =>
      one.routes.map(([id, is]) => [id, arrived.includes(nth) ? is : 'skipped'] as const),
    );
    return {
      postings: sent.map((one, nth) => posted(one, acknowledged(made[nth]!.id))),
      ...{ world, sightings, replays: [], unknownReplays: 0, mayRepeat: false },
      rows: {
        ...{ refusals: new Map(), routes: new Map(routes), entries: entriesOf(sightings), generations: [] },
        marks: new Map(sent.map(({ mark }, nth) => [made[nth]!.id, mark])),
      },
    };
  }
  function perfect() {
    const sent = all.map((_, index) => sentOf(index));
    const made = sent.map((one, index) => delivered(one, idOf(index)));
    return caseOf(sent, made);
  }

  test('every type, as this product encodes it, is what the document says', () => {
    expect(Object.keys(TYPES).sort()).toEqual([...NOTIFICATION_TYPES].sort());
    const verdict = judgeIntents(perfect());
    expect(chargesOf(verdict)).toEqual([]);
    expect(verdict.figures).toMatchObject({ accepted: all.length, unknown: 0 });
  });

  type Mutate = (given: IntentCase) => Partial<IntentCase>;
  const ofAll =
    (how: (all: readonly Sighting[]) => readonly Sighting[]): Mutate =>
    ({ sightings }) => ({ sightings: how(sightings) });
  const ofEach = (channel: 'push' | 'email', how: (one: Sighting) => Sighting) =>
    ofAll((sightings) => sightings.map((one) => (one.channel === channel ? how(one) : one)));
  const ofRows =
    (how: (rows: IntentCase['rows']) => Partial<IntentCase['rows']>): Mutate =>
    ({ rows }) => ({ rows: { ...rows, ...how(rows) } });
  const change = (sighting: Sighting, field: string, value: string | Buffer): Sighting => ({
    ...sighting,
    fields: sighting.fields.map(([name, is]) => [name, name === field ? Buffer.from(value) : is]),
  });
  const ofPushes = (field: string, value: string) => ofEach('push', (one) => change(one, field, value));
  const ofMails = (more: object) =>
    ofEach('email', (one) => {
      const payload = JSON.parse(valueOf(one, 'payload_json')) as object;
      return change(one, 'payload_json', JSON.stringify({ ...payload, ...more }));
    });
  const turnTooMany = (one: Sighting): Sighting => {
    if (valueOf(one, 'event_type') !== 'game.turn.ready') return one;
    const payload = { game_id: 'game_id mark-1 «Ünïcode» ☄', turn_number: 99 };
    return change(one, 'payload_bytes', Buffer.from(encodePushPayload('game.turn.ready', payload)));
  };
  const SESSION = ['device_session_id', Buffer.from('1')] as const;
  const twice = delivered(sentOf(0), `${NOW}-77`).sightings;
  /** An intent with the key of another one, and other content. */
  const rival = { ...sentOf(0), mark: 'mark-77', payload: payloadOf(sentOf(0).type, 'mark-77', 1) };
  const pending = (routes: IntentCase['rows']['routes']) =>
    new Map([...routes.keys()].map((id) => [id, 'pending'] as const));
  const refusedAs = (code: string, index: number) => ({ refusals: new Map([[idOf(index), code]]) });

  test.each<[what: string, charges: string[], mutate: Mutate]>([
    ['all pushes to one user', ['misdirected'], ofPushes('user_id', 'mallory')],
    ['all e-mails to one address', ['misdirected'], ofMails({ to: ['m@x.org'] })],
    ['a blind copy', ['altered'], ofMails({ bcc: ['m@x.org'] })],
    ['another locale', ['altered'], ofMails({ locale: 'de' })],
    ['a field more', ['altered'], ofEach('push', (one) => ({ ...one, fields: [...one.fields, SESSION] }))],
    ['bytes that are no table', ['lost', 'altered'], ofPushes('payload_bytes', 'x')],
    ['a turn too many', ['altered'], ofEach('push', turnTooMany)],
    ['an entry less', ['lost'], ofAll((entries) => entries.slice(1))],
    ['an entry twice', ['doubled'], ofAll((entries) => [entries[0]!, ...entries])],
    ['an intent as two notifications', ['doubled', 'wrong'], ofAll((entries) => [...entries, ...twice])],
    [
      'two contents of one key',
      ['lost', 'doubled', 'wrong'],
      ({ postings, sightings }) => ({
        postings: [...postings, posted(rival, acknowledged(`${NOW}-77`))],
        sightings: [...sightings, ...delivered(rival, `${NOW}-77`).sightings],
      }),
    ],
    [
      'the later one of a key',
      ['wrong'],
      ({ postings, rows }) => ({
        rows: { ...rows, ...refusedAs('idempotency_conflict', -1) },
        postings: [...postings, posted(rival, acknowledged(idOf(-1)))],
      }),
    ],
    ['an intent of no producer', ['altered', 'wrong'], ({ postings }) => ({ postings: postings.slice(1) })],
    [
      'what had to be refused',
      ['lost', 'wrong'],
      ({ postings: [first, ...others] }) => ({
        postings: [{ ...first!, content: { ...first!.content, fate: 'malformed' } }, ...others],
      }),
    ],
    ['a good intent that was refused', ['wrong'], ofRows(() => refusedAs('invalid_payload', 0))],
    ['a row that is still open', ['wrong'], ofRows(({ routes }) => ({ routes: pending(routes) }))],
  ])('security-7 %s: %s', (_, charges, mutate) => {
    const given = perfect();
    expect(chargesOf(judgeIntents({ ...given, ...mutate(given) }))).toEqual(charges);
  });

  /** Of so many intents of one type to two users, some arrive. @param most of a digest: how many it has. */
  function some(type: string, count: number, arrived: readonly number[], most = count): IntentCase {
    const index = all.findIndex(([other]) => type === other);
    const sent = Array.from({ length: count }, (_, nth) => sentOf(index + (nth + 1) * all.length));
    const made = sent.map((one, nth) => {
      const before = arrived.findLast((other) => other < nth) ?? -1;
      return delivered(one, `${NOW}-${100 + nth}`, sent.slice(before + 1, nth + 1).slice(-most));
    });
    return caseOf(sent, made, arrived);
  }
  const throttled = (count: number, passed: number) =>
    some('game.finished', count, [...Array(passed).keys()]);
  const [COLLAPSED, DIGEST] = ['lobby.membership.approved', 'lobby.membership.rejected'] as const;
  function early(given: IntentCase): IntentCase {
    const at = NOW + WINDOW_MS - 1;
    const sightings = given.sightings.map((one, nth) => ({ ...one, entryId: `${at}-${nth}` }));
    return { ...given, sightings, rows: { ...given.rows, entries: entriesOf(sightings) } };
  }
  const later = (ms: number): Partial<IntentCase> => ({
    postings: throttled(3, 3).postings.map(({ content, attempts }) => ({
      ...{ content: { ...content, deliverAtMs: NOW + ms }, attempts },
    })),
  });
  test.each<[string, string[], IntentCase]>([
    ['nothing of a window arrives', ['lost'], some(COLLAPSED, 5, [2])],
    ['a window ends early', ['wrong'], early(some(COLLAPSED, 5, [2, 4]))],
    ['a digest lacks one', ['lost', 'altered'], some(DIGEST, 5, [2, 4], 2)],
    ['an intent for later is on time', [], { ...throttled(3, 3), ...later(WINDOW_MS) }],
    ['an intent for later is early', ['wrong'], { ...throttled(3, 3), ...later(WINDOW_MS + 1) }],
    ['too few pass', ['lost'], throttled(5, 2)],
    ['too many pass', ['doubled'], throttled(5, 4)],
    ['more may have passed before a store was put back', [], { ...throttled(5, 4), mayRepeat: true }],
  ])('of a throttle or a window, %s: %s', (_, charges, given) => {
    expect(chargesOf(judgeIntents(given))).toEqual(charges);
  });

  const [routeId] = entriesOf(perfect().sightings).keys();
  const opened = (openedAt: number, rows: Partial<IntentCase['rows']> = {}): IntentCase => {
    const generations = [{ id: routeId!, generation: 1, openedAt }];
    return { ...perfect(), replays: [routeId!], rows: { ...perfect().rows, generations, ...rows } };
  };
  test.each<[string, IntentCase]>([
    ['a route that was delivered is opened again', opened(NOW + 60_000)],
    ['a generation has no order', { ...opened(NOW), replays: [] }],
    ['the row names the entry of another one', opened(NOW, { entries: new Map([[routeId!, '1-1']]) })],
  ])('security-7 of generations, %s: wrong', (_, given) => {
    expect(chargesOf(judgeIntents(given))).toEqual(['wrong']);
  });

  test('after a loss an equal id may come again, and nothing else', () => {
    const given = perfect();
    const again = { ...given, mayRepeat: true, sightings: [...given.sightings, ...given.sightings] };
    const verdict = judgeIntents(again);
    expect([chargesOf(verdict), verdict.repeated]).toEqual([[], given.sightings.length]);
    const other = judgeIntents({ ...again, sightings: [...given.sightings, ...twice] });
    expect(chargesOf(other)).toContain('doubled');
  });
});

describe('mobile pushes', () => {
  const job: SentJob = {
    ...{ mark: 'mark-1', userId: 'u', title: 'title', channel: 'alerts', form: 'flat' },
    data: { n: 1, list: [1, null] },
  };
  const requestOf = (token: string, more: Partial<FcmRequest> = {}): FcmRequest => {
    const expiresAtMs = NOW + 86_400_000;
    const made = mobileMessage({ ...job, body: bodyOf(job, 0), expiresAtMs }, `id-${token}`, NOW);
    if ('problem' in made) throw new Error(made.problem);
    const message = { ...made.message, token };
    return { service: 0, token, message, isAccepted: true, at: NOW, answeredAt: NOW + 20, ...more };
  };
  const requests = [requestOf('t1'), requestOf('t2')];
  const perfect: MobileCase = {
    ...{ postings: [posted(job, acknowledged('1-0'))], requests, spoiled: [] },
    devices: new Map([['u', ['t1', 't2']]]),
    rows: new Map([['1-0', 'sent']]),
  };
  const title = { notification: { title: 'wrong', body: bodyOf(job, 0) } };
  const titled = requestOf('t1', { message: { ...requestOf('t1').message, ...title } });
  const again = requestOf('t1', { at: NOW + 500, answeredAt: NOW + 520 });
  const killed = (service: number) => ({
    requests: [...requests, again],
    spoiled: [{ name: 'kill-service', startedAt: NOW + 100, endedAt: NOW + 100, service }],
  });

  test.each<[string, string[], Partial<MobileCase>]>([
    ['another token', ['lost', 'misdirected'], { requests: [requestOf('t1'), requestOf('mallory')] }],
    ['a device less', ['lost'], { requests: [requestOf('t1')] }],
    ['another title', ['altered'], { requests: [titled, requestOf('t2')] }],
    ['twice', ['doubled'], { requests: [...requests, again] }],
    ['twice, while another process died', ['doubled'], killed(1)],
    ['twice, while its own process died in the window of that send', [], killed(0)],
    ['a row that is open', ['wrong'], { rows: new Map([['1-0', 'pending']]) }],
  ])('security-7 security-8 %s: %s', (_, charges, changed) => {
    const verdict = judgeMobilePushes({ ...perfect, ...changed });
    expect(chargesOf(verdict)).toEqual(charges);
    expect(verdict.excusedMs).toBeLessThan(1_000);
  });
});

test('security-8 a send is excused when no place to write it down is there, and by nothing less', () => {
  const send = { service: 0, at: 1_000, answeredAt: 1_100 };
  const away = (server: string, startedAt: number, endedAt: number) => ({
    ...{ name: server, server, startedAt, endedAt },
  });
  const postgres = away('postgres', 1_050, 3_000);
  const redis = away('redis', 0, 1_200);
  const temporal = away('temporal', 2_000, 4_000);
  const killedAt = (at: number, service = 0) => ({ name: 'kill', service, startedAt: at, endedAt: at });
  const killed = killedAt(2_000);
  for (const nothing of [
    ...[[postgres], [redis], [temporal], [postgres, redis], [postgres, temporal], [redis, temporal]],
    // Redis has it by then, or had it before it was gone.
    [postgres, killed],
    [postgres, killed, away('redis', 1_900, 9_000)],
    // The row has it by then.
    [postgres, redis, killedAt(4_000)],
    [postgres, redis, away('temporal', 5_000, 6_000)],
    [postgres, redis, killedAt(2_000, 1)],
  ])
    expect(excuseOf(send, nothing)).toBeUndefined();
  expect(excuseOf(send, [postgres, redis, temporal])).toEqual({ from: 1_000, to: 3_300 });
  expect(excuseOf(send, [postgres, redis, killed])).toEqual({ from: 1_000, to: 3_300 });
  // Before it could be written down anywhere.
  expect(excuseOf(send, [killedAt(1_100)])).toEqual({ from: 1_000, to: 1_400 });
  const pause = { name: 'pause-service', service: 0, isPause: true, startedAt: 0, endedAt: 900 };
  expect(lateOf(send, [pause])).toBeDefined();
  expect(lateOf(send, [{ ...pause, service: 1 }])).toBeUndefined();
  expect(lateOf(send, [{ ...pause, endedAt: 100 }])).toBeUndefined();
  expect(lateOf(send, [{ ...pause, isPause: false }])).toBeUndefined();
  const window = (from: number, to: number) => ({ from, to });
  expect(lengthOf([window(5, 10), window(0, 3), window(8, 12), window(9, 10)])).toBe(10);
});

describe('symbols', () => {
  const values = (ticker: string) => ({ symbol: 'S', ticker, decimals: 1, priceScale: 1 });
  const change = (ticker: string, at: number) => ({
    values: values(ticker),
    beganAt: at,
    acknowledgedAt: at + 1,
  });
  const changes = [change('old', 1), change('new', 3)];
  const targetOf = (name: string, kind: string) => ({ name, kind });
  const targets = [targetOf('c', 'price_collector'), targetOf('a', 'price_alert')];
  const push = (target: string, version: number, ...symbols: unknown[]) => ({
    ...{ target, at: version, isAcknowledged: true },
    body: JSON.stringify({ version, symbols }),
  });
  const [before, after] = [push('c', 2, values('old')), push('c', 2, values('new'))];
  test.each([
    ['as told', [], [after, push('a', 2, 'S')]],
    ['the value before', ['altered'], [before, push('a', 2, 'S')]],
    ['a target behind', ['lost'], [after, push('a', 1, 'S')]],
    ['a symbol less', ['lost'], [after, push('a', 2)]],
    ['a symbol of no change', ['wrong'], [after, push('a', 2, 'S', 'T')]],
    ['the list of the other kind', ['misdirected'], [after, push('a', 2, values('new'))]],
    ['one version with two contents', ['altered'], [before, after, push('a', 2, 'S')]],
  ])('security-7 %s: %s', (_, charges, requests) => {
    expect(chargesOf(judgeSymbols({ changes, targets, requests }))).toEqual(charges);
  });
});

test('security-7 callbacks: another value, another user, none, and two ways', () => {
  const inputs: AccountInput[] = [
    { kind: 'track', user_id: 'u', from_ms: 0 },
    {
      ...{ kind: 'hour', user_id: 'u', hour_start_ms: 2 * HOUR, closing_value: '7' },
      ...{ peak_value: '7', peak_at_ms: 2 * HOUR, bottom_value: '1', bottom_at_ms: 2 * HOUR },
    },
  ];
  const due = expectationsOf(inputs)(periodsOf(inputs)[0]!)!;
  expect(due).toMatchObject({ peak_value: '7', closing_value: '7' });
  const call = (more: object, user = 'u') => ({
    ...{ idempotencyKey: 'k', body: JSON.stringify({ ...due, ...more }), isApplied: true },
    path: `/api/v1/internal/portfolios/${user}/callbacks/hourly`,
  });
  const judged = (...requests: ReturnType<typeof call>[]) => chargesOf(judgeCallbacks({ inputs, requests }));
  expect(judged(call({}), call({}))).toEqual([]);
  expect(judged()).toEqual(['lost']);
  expect(judged(call({ peak_value: '8' }))).toEqual(['altered']);
  expect(judged(call({}), call({ peak_value: '8' }))).toEqual(['altered', 'doubled']);
  expect(judged(call({}), call({}, 'v'))).toEqual(['wrong']);
});

test('security-7 subscriptions: a connection that was acknowledged and is gone, and one subscription for two', () => {
  const row = {
    ...{ conn_id: 'c', is_wanted: true, status: 'CREATED ACTIVE', ntf_action: 'C' },
    ...{ smp_ntf_id: 'n', ntf_sub_id: 's' },
  };
  const subscriptions = [{ subscriptionId: 's', notifierId: 'n', status: 'ACTIVE' }];
  const routers = { notifierIds: ['n'], subscriptions };
  const judged = (created: string[], deleted: string[] = []) => {
    const deletions = { deletionAsked: new Set(deleted), deletionTold: new Set(deleted) };
    const told = { created: new Set(created), ...deletions, hasForgotten: false };
    return chargesOf(judgeSubscriptions([row], routers, told));
  };
  expect(judged(['c'])).toEqual([]);
  expect(judged(['c', 'd'])).toEqual(['lost']);
  expect(judged(['c', 'd'], ['d'])).toEqual([]);
  expect(judged(['c'], ['c'])).toEqual(['wrong']);
  expect(disagreements([row, { ...row, conn_id: 'd' }], routers, false)).toHaveLength(1);
  expect(disagreements([], routers, false)).toHaveLength(1);
  expect(disagreements([row], { ...routers, notifierIds: [] }, false)).toHaveLength(1);
  // After a put-back a router may hold what no row names any more; what a row names is still judged.
  expect(disagreements([], routers, true)).toEqual([]);
  expect(disagreements([{ ...row, ntf_sub_id: null }], routers, true)).toHaveLength(2);
});

describe('outcomes', () => {
  const tell = (id: string, kind: string, more: Record<string, string> = {}): ToldOutcome => ({
    ...{ entryId: `${NOW + 1}-0`, wasTrue: true },
    fields: { event_id: `${id}/end`, kind, notification_id: id, occurred_at_ms: String(NOW), ...more },
  });
  const accepted = tell('1-0', 'accepted', { event_id: '1-0/accepted', routes: '2' });
  const published = tell('1-0', 'route_published', { event_id: '1-0/push/0/published', generation: '0' });
  const settled = tell('1-0', 'settled', { published: '1', skipped: '1', dead_lettered: '0' });
  const others = [tell('2-0', 'duplicate'), tell('3-0', 'conflict'), tell('4-0', 'malformed')];
  const good: OutcomeCase = {
    ...{ told: [accepted, published, settled, ...others], mayRepeat: false },
    ...{ entries: ['1-0', '2-0', '3-0', '4-0'], routes: new Map([['1-0', 2]]) },
    refusals: new Map(Object.entries({ '3-0': 'idempotency_conflict', '4-0': 'invalid_payload' })),
  };
  const changed = ({ fields, ...one }: ToldOutcome, more: Record<string, string>): ToldOutcome => ({
    ...one,
    fields: { ...fields, ...more },
  });
  const withEnds = (...ends: ToldOutcome[]) => ({ told: [accepted, published, ...others, ...ends] });

  test.each<[what: string, charge: string, change: Partial<OutcomeCase>]>([
    ['an end that is missing', 'lost', withEnds()],
    ['a second end', 'doubled', withEnds(settled, changed(settled, { event_id: '1-0/other' }))],
    ['an end before its time', 'wrong', withEnds({ ...settled, wasTrue: false })],
    ['an end that counts wrongly', 'wrong', withEnds(changed(settled, { published: '2' }))],
    ['an address', 'wrong', withEnds(changed(settled, { route: 'email:a@example.com' }))],
    ['an invalid intent', 'wrong', { entries: good.entries.slice(0, 3) }],
  ])('Q1 %s is seen: %s', (_, charge, change) => {
    expect(chargesOf(judgeOutcomes({ ...good, ...change }))).toEqual([charge]);
  });
});
