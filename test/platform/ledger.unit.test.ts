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
import type { Spoiled } from '../../faults/ledger/excuse.ts';
import { excuseOf, lateOf, lengthOf } from '../../faults/ledger/excuse.ts';
import type { SentIntent } from '../../faults/ledger/intent-entries.ts';
import { entryOf } from '../../faults/ledger/intent-entries.ts';
import type { IntentCase } from '../../faults/ledger/intent.ts';
import { judgeIntents } from '../../faults/ledger/intent.ts';
import type { FcmRequest, MobileCase, SentJob } from '../../faults/ledger/mobile-push.ts';
import { bodyOf, judgeMobilePushes } from '../../faults/ledger/mobile-push.ts';
import { TYPES, WINDOW_MS, payloadOf } from '../../faults/ledger/notification-types.ts';
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
  const world: World = {
    users: new Map(
      ['a', 'b'].map((id) => [
        id,
        { email: `${id}@example.com`, preferredLanguage: id === 'a' ? 'de' : 'en' },
      ]),
    ),
    admins: ['one@example.com', 'two@example.com'],
  };
  const all = NOTIFICATION_TYPES.flatMap((type) => specOf(type).audiences.map((a) => [type, a]));

  function sentOf(index: number): SentIntent {
    const [type, audience] = all[index % all.length] as [string, SentIntent['audience']];
    const mark = `mark-${index}`;
    return {
      mark,
      type,
      audience,
      recipients: audience === 'user' ? ['a', 'b'] : [],
      key: `key-${index}`,
      payload: { ...payloadOf(type, mark, index), mark },
      occurredAtMs: NOW,
      ...(index % 2 === 0 ? { requestId: 'r' } : {}),
      fate: 'delivered',
    };
  }

  /** What this product makes of an intent, by its own parser and encoders. @param window of a digest, ends with the intent. */
  function delivered(sent: SentIntent, notificationId: string, window = [sent]) {
    const parsed = parseIntent(
      notificationId,
      entryOf(sent).map(([name, value]) => [Buffer.from(name), Buffer.from(value)]),
    );
    if (!parsed.ok) throw new Error(parsed.malformed.failureMessage);
    const { intent } = parsed;
    const { channels: byAudience, collapse } = TYPES[sent.type]!;
    const channels = byAudience[sent.audience]!;
    const digest = { items: window.map(({ payload }) => payload), items_omitted: 0 };
    const refs = sent.audience === 'user' ? ['user:a', 'user:b'] : world.admins.map((to) => `email:${to}`);
    const sightings: Sighting[] = [];
    const routes: [string, string][] = [];
    for (const recipientRef of refs) {
      for (const channel of ['push', 'email'] as const) {
        const routeId = `${channel}:${recipientRef}`;
        routes.push([`${notificationId}/${routeId}`, channels.includes(channel) ? 'published' : 'skipped']);
        if (!channels.includes(channel)) continue;
        const common = { notificationId, routeId, requestId: sent.requestId, traceId: undefined };
        const type = intent.notificationType;
        const fields =
          channel === 'push'
            ? [
                ...gatewayEntryFields({
                  ...common,
                  notificationType: type,
                  recipientRef,
                  payloadBytes: encodePushPayload(
                    type,
                    JSON.parse(intent.payloadJson) as Record<string, unknown>,
                  ),
                }),
                ...(collapse === 'digest' ? [['item_count', String(window.length)] as const] : []),
              ]
            : mailEntryFields({
                ...common,
                templateId: type,
                email: recipientRef.startsWith('user:')
                  ? `${recipientRef.slice(5)}@example.com`
                  : recipientRef.slice(6),
                locale: 'en',
                acceptedAtMs: NOW + 5,
                payloadJson: JSON.stringify({ ...sent.payload, ...(collapse === 'digest' ? digest : {}) }),
              });
        sightings.push({
          channel,
          entryId: `${NOW + WINDOW_MS}-${sightings.length}`,
          fields: fields.map(([name, value]) => [name, Buffer.from(value)]),
          seenAt: NOW + 10,
        });
      }
    }
    return { id: notificationId, sightings, routes };
  }

  /** What rows say of entries: as which each route was handed off. */
  const entriesOf = (sightings: readonly Sighting[]) =>
    new Map(
      sightings.map(({ fields, entryId }): [string, string] => [
        fields.find(([name]) => name === 'event_id' || name === 'delivery_id')![1].toString(),
        entryId,
      ]),
    );
  const idOf = (index: number) => `${NOW + index}-0`;
  /** @param arrived which of them arrive; the routes of the others are skipped. */
  function caseOf(
    sent: readonly SentIntent[],
    made: readonly ReturnType<typeof delivered>[],
    arrived: readonly number[] = [...sent.keys()],
  ): IntentCase {
    const sightings = arrived.flatMap((nth) => made[nth]!.sightings);
    return {
      postings: sent.map((one, nth) => posted(one, acknowledged(made[nth]!.id))),
      world,
      sightings,
      rows: {
        refusals: new Map(),
        marks: new Map(sent.map(({ mark }, nth) => [made[nth]!.id, mark])),
        routes: new Map(
          made.flatMap(({ routes }, nth) =>
            routes.map(([id, is]) => [id, arrived.includes(nth) ? is : 'skipped']),
          ),
        ),
        entries: entriesOf(sightings),
        generations: [],
      },
      replays: [],
      unknownReplays: 0,
      mayRepeat: false,
    };
  }
  function perfect() {
    const sent = all.map((_, index) => sentOf(index));
    return caseOf(
      sent,
      sent.map((one, index) => delivered(one, idOf(index))),
    );
  }
  const change = (sighting: Sighting, field: string, value: string | Buffer): Sighting => ({
    ...sighting,
    fields: sighting.fields.map(([name, is]) => [name, name === field ? Buffer.from(value) : is]),
  });
  const changeMail = (sighting: Sighting, more: object): Sighting => {
    const payload = JSON.parse(
      sighting.fields.find(([name]) => name === 'payload_json')![1].toString(),
    ) as object;
    return change(sighting, 'payload_json', JSON.stringify({ ...payload, ...more }));
  };
  const valueOf = (one: Sighting, name: string) =>
    one.fields.find(([field]) => field === name)![1].toString();

  test('every type, as this product encodes it, is what the document says', () => {
    expect(Object.keys(TYPES).sort()).toEqual([...NOTIFICATION_TYPES].sort());
    const verdict = judgeIntents(perfect());
    expect(chargesOf(verdict)).toEqual([]);
    expect(verdict.figures).toMatchObject({ accepted: all.length, unknown: 0 });
  });

  const changeRows = (given: IntentCase, rows: Partial<IntentCase['rows']>): IntentCase => ({
    ...given,
    rows: { ...given.rows, ...rows },
  });
  /** An intent with the key of another one, and other content. */
  const rival = {
    ...{ ...sentOf(0), mark: 'mark-77' },
    payload: { ...payloadOf(sentOf(0).type, 'mark-77', 1) },
  };
  const turnTooMany = (one: Sighting): Sighting => {
    if (valueOf(one, 'event_type') !== 'game.turn.ready') return one;
    const payload = { game_id: 'game_id mark-1 «Ünïcode» ☄', turn_number: 99 };
    return change(one, 'payload_bytes', Buffer.from(encodePushPayload('game.turn.ready', payload)));
  };
  const withSession = (one: Sighting): Sighting => ({
    ...one,
    fields: [...one.fields, ['device_session_id', Buffer.from('1')]],
  });

  type Mutate = (given: IntentCase) => Partial<IntentCase>;
  const ofEach =
    (channel: 'push' | 'email', how: (one: Sighting) => Sighting): Mutate =>
    ({ sightings }) => ({ sightings: sightings.map((one) => (one.channel === channel ? how(one) : one)) });
  const ofMails = (more: object) => ofEach('email', (one) => changeMail(one, more));
  const ofPushes = (field: string, value: string) => ofEach('push', (one) => change(one, field, value));
  const mutants: [what: string, charges: string[], mutate: Mutate][] = [
    ['all pushes to one user', ['misdirected'], ofPushes('user_id', 'mallory')],
    ['all e-mails to one address', ['misdirected'], ofMails({ to: ['m@x.org'] })],
    ['a blind copy', ['altered'], ofMails({ bcc: ['m@x.org'] })],
    ['another locale', ['altered'], ofMails({ locale: 'de' })],
    ['a field more', ['altered'], ofEach('push', withSession)],
    ['bytes that are no table', ['altered', 'lost'], ofPushes('payload_bytes', 'x')],
    ['a turn too many', ['altered'], ofEach('push', turnTooMany)],
    ['an entry less', ['lost'], ({ sightings }) => ({ sightings: sightings.slice(1) })],
    ['an entry twice', ['doubled'], ({ sightings }) => ({ sightings: [sightings[0]!, ...sightings] })],
    [
      'an intent as two notifications',
      ['doubled', 'wrong'],
      ({ sightings }) => ({ sightings: [...sightings, ...delivered(sentOf(0), `${NOW}-77`).sightings] }),
    ],
    [
      'two contents of one key',
      ['doubled', 'lost', 'wrong'],
      ({ postings, sightings }) => ({
        postings: [...postings, posted(rival, acknowledged(`${NOW}-77`))],
        sightings: [...sightings, ...delivered(rival, `${NOW}-77`).sightings],
      }),
    ],
    [
      'the later one of a key',
      ['wrong'],
      (given) => ({
        ...changeRows(given, { refusals: new Map([[`${NOW - 1}-0`, 'idempotency_conflict']]) }),
        postings: [...given.postings, posted(rival, acknowledged(`${NOW - 1}-0`))],
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
    [
      'a good intent that was refused',
      ['wrong'],
      (given) => changeRows(given, { refusals: new Map([[idOf(0), 'invalid_payload']]) }),
    ],
    [
      'a row that is still open',
      ['wrong'],
      (given) =>
        changeRows(given, { routes: new Map([...given.rows.routes].map(([id]) => [id, 'pending'])) }),
    ],
  ];

  test.each(mutants)('security-7 %s: %s', (_, charges, mutate) => {
    const given = perfect();
    expect(chargesOf(judgeIntents({ ...given, ...mutate(given) })).sort()).toEqual([...charges].sort());
  });

  describe('a throttle, windows', () => {
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
      const sightings = given.sightings.map((one, nth) => ({
        ...one,
        entryId: `${NOW + WINDOW_MS - 1}-${nth}`,
      }));
      return { ...given, sightings, rows: { ...given.rows, entries: entriesOf(sightings) } };
    }
    const forLater = (given: IntentCase, laterMs: number): IntentCase => ({
      ...given,
      postings: given.postings.map((one) => ({
        ...one,
        content: { ...one.content, deliverAtMs: NOW + laterMs },
      })),
    });
    test.each<[string, IntentCase, string[]]>([
      ['nothing of a window arrives', some(COLLAPSED, 5, [2]), ['lost']],
      ['a window ends early', early(some(COLLAPSED, 5, [2, 4])), ['wrong']],
      ['a digest lacks one', some(DIGEST, 5, [2, 4], 2), ['lost', 'altered']],
      ['an intent for later is on time', forLater(throttled(3, 3), WINDOW_MS), []],
      ['an intent for later is early', forLater(throttled(3, 3), WINDOW_MS + 1), ['wrong']],
      ['too few pass', throttled(5, 2), ['lost']],
      ['too many pass', throttled(5, 4), ['doubled']],
      ['more may have passed before a store was put back', { ...throttled(5, 4), mayRepeat: true }, []],
    ])('%s', (_, given, charges) => {
      expect(chargesOf(judgeIntents(given))).toEqual(charges);
    });
  });

  describe('generations', () => {
    const [id] = entriesOf(perfect().sightings).keys();
    const opened = (...generations: [generation: number, openedAt: number][]) => ({
      ...perfect(),
      replays: [id!],
      rows: {
        ...perfect().rows,
        generations: generations.map(([generation, openedAt]) => ({ id: id!, generation, openedAt })),
      },
    });

    test.each<[string, IntentCase]>([
      ['a route that was delivered is opened again', opened([1, NOW + 60_000])],
      ['a generation without an order', { ...opened([1, NOW]), replays: [] }],
      [
        'the row names the entry of another generation',
        { ...opened([1, NOW]), rows: { ...opened([1, NOW]).rows, entries: new Map([[id!, '1-1']]) } },
      ],
    ])('security-7 %s', (_, given) => {
      expect(chargesOf(judgeIntents(given))).toEqual(['wrong']);
    });
  });

  test('after a loss an equal id may come again, and nothing else', () => {
    const given = perfect();
    const again = { ...given, mayRepeat: true, sightings: [...given.sightings, ...given.sightings] };
    const verdict = judgeIntents(again);
    expect([chargesOf(verdict), verdict.repeated]).toEqual([[], given.sightings.length]);
    const other = judgeIntents({
      ...again,
      sightings: [...given.sightings, ...delivered(sentOf(0), `${NOW}-77`).sightings],
    });
    expect(chargesOf(other)).toContain('doubled');
  });
});

describe('mobile pushes', () => {
  const job: SentJob = {
    mark: 'mark-1',
    userId: 'u',
    title: 'title',
    channel: 'alerts',
    data: { n: 1, list: [1, null] },
    form: 'flat',
  };
  const requestOf = (token: string, more: Partial<FcmRequest> = {}): FcmRequest => {
    const expiresAtMs = NOW + 86_400_000;
    const made = mobileMessage({ ...job, body: bodyOf(job, 0), expiresAtMs }, `id-${token}`, NOW);
    if ('problem' in made) throw new Error(made.problem);
    const message = { ...made.message, token };
    return { service: 0, token, message, isAccepted: true, at: NOW, answeredAt: NOW + 20, ...more };
  };
  const perfect = (): MobileCase => ({
    postings: [posted(job, acknowledged('1-0'))],
    devices: new Map([['u', ['t1', 't2']]]),
    requests: [requestOf('t1'), requestOf('t2')],
    rows: new Map([['1-0', 'sent']]),
    spoiled: [],
  });
  const altered = (more: object): FcmRequest => {
    const request = requestOf('t1');
    return { ...request, message: { ...request.message, ...more } };
  };
  const again = { at: NOW + 500, answeredAt: NOW + 520 };
  const kill = (more: Partial<Spoiled>): Spoiled[] => [
    { name: 'kill-service', startedAt: NOW + 100, endedAt: NOW + 100, ...more },
  ];

  test.each<[string, string[], Partial<MobileCase>]>([
    ['another token', ['misdirected', 'lost'], { requests: [requestOf('t1'), requestOf('mallory')] }],
    ['a device less', ['lost'], { requests: [requestOf('t1')] }],
    [
      'another title',
      ['altered'],
      { requests: [altered({ notification: { title: 'wrong', body: bodyOf(job, 0) } }), requestOf('t2')] },
    ],
    ['twice', ['doubled'], { requests: [...perfect().requests, requestOf('t1', again)] }],
    [
      'twice, while another process died',
      ['doubled'],
      { requests: [...perfect().requests, requestOf('t1', again)], spoiled: kill({ service: 1 }) },
    ],
    ['a row that is open', ['wrong'], { rows: new Map([['1-0', 'pending']]) }],
  ])('security-7 security-8 %s: %s', (_, charges, changed) => {
    expect(chargesOf(judgeMobilePushes({ ...perfect(), ...changed })).sort()).toEqual([...charges].sort());
  });

  test('a double is excused when its own process died in the window of that send', () => {
    const verdict = judgeMobilePushes({
      ...perfect(),
      requests: [...perfect().requests, requestOf('t1', again)],
      spoiled: kill({ service: 0 }),
    });
    expect([chargesOf(verdict), verdict.figures['doubles that were excused']]).toEqual([[], 1]);
    expect(verdict.excusedMs).toBeLessThan(1_000);
  });
});

test('security-8 a send is excused when no place to write it down is there, and by nothing less', () => {
  const send = { service: 0, at: 1_000, answeredAt: 1_100 };
  const spoiled = (server: string, startedAt: number, endedAt: number): Spoiled => ({
    name: server,
    server,
    startedAt,
    endedAt,
  });
  const postgres = spoiled('postgres', 1_050, 3_000);
  const redis = spoiled('redis', 0, 1_200);
  const temporal = spoiled('temporal', 2_000, 4_000);
  const killed = { name: 'kill-service', service: 0, startedAt: 2_000, endedAt: 2_000 };
  for (const nothing of [
    [postgres],
    [redis],
    [temporal],
    [postgres, redis],
    [postgres, temporal],
    [redis, temporal],
    // Redis has it by then, or had it before it was gone.
    [postgres, killed],
    [postgres, killed, spoiled('redis', 1_900, 9_000)],
    // The row has it by then.
    [postgres, redis, { ...killed, startedAt: 4_000, endedAt: 4_000 }],
    [postgres, redis, spoiled('temporal', 5_000, 6_000)],
    [postgres, redis, { ...killed, service: 1 }],
  ])
    expect(excuseOf(send, nothing)).toBeUndefined();
  expect(excuseOf(send, [postgres, redis, temporal])).toEqual({ from: 1_000, to: 3_300 });
  expect(excuseOf(send, [postgres, redis, killed])).toEqual({ from: 1_000, to: 3_300 });
  // Before it could be written down anywhere.
  expect(excuseOf(send, [{ ...killed, startedAt: 1_100, endedAt: 1_100 }])).toEqual({
    from: 1_000,
    to: 1_400,
  });
  const pause = { name: 'pause-service', service: 0, isPause: true, startedAt: 0, endedAt: 900 };
  expect(lateOf(send, [pause])).toBeDefined();
  expect(lateOf(send, [{ ...pause, service: 1 }])).toBeUndefined();
  expect(lateOf(send, [{ ...pause, endedAt: 100 }])).toBeUndefined();
  expect(lateOf(send, [{ ...pause, isPause: false }])).toBeUndefined();
  const windows = [
    [5, 10],
    [0, 3],
    [8, 12],
    [9, 10],
  ].map(([from, to]) => ({ from: from!, to: to! }));
  expect(lengthOf(windows)).toBe(10);
});

describe('symbols', () => {
  const values = (ticker: string) => ({ symbol: 'S', ticker, decimals: 1, priceScale: 1 });
  const changes = [
    { values: values('old'), beganAt: 1, acknowledgedAt: 2 },
    { values: values('new'), beganAt: 3, acknowledgedAt: 4 },
  ];
  const targets = [
    { name: 'c', kind: 'price_collector' },
    { name: 'a', kind: 'price_alert' },
  ];
  const push = (target: string, version: number, symbols: unknown[]) => ({
    target,
    body: JSON.stringify({ version, symbols }),
    at: version,
    isAcknowledged: true,
  });
  test.each([
    ['as told', [], [push('c', 2, [values('new')]), push('a', 2, ['S'])]],
    ['the value before', ['altered'], [push('c', 2, [values('old')]), push('a', 2, ['S'])]],
    ['a target behind', ['lost'], [push('c', 2, [values('new')]), push('a', 1, ['S'])]],
    ['a symbol less', ['lost'], [push('c', 2, [values('new')]), push('a', 2, [])]],
    ['a symbol of no change', ['wrong'], [push('c', 2, [values('new')]), push('a', 2, ['S', 'T'])]],
    [
      'the list of the other kind',
      ['misdirected'],
      [push('c', 2, [values('new')]), push('a', 2, [values('new')])],
    ],
    [
      'one version with two contents',
      ['altered'],
      [push('c', 2, [values('old')]), push('c', 2, [values('new')]), push('a', 2, ['S'])],
    ],
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
  const [period] = periodsOf(inputs);
  const due = expectationsOf(inputs)(period!)!;
  expect(due).toMatchObject({ peak_value: '7', closing_value: '7' });
  const call = (more: object, user = 'u') => ({
    path: `/api/v1/internal/portfolios/${user}/callbacks/hourly`,
    idempotencyKey: 'k',
    body: JSON.stringify({ ...due, ...more }),
    isApplied: true,
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
    conn_id: 'c',
    is_wanted: true,
    status: 'CREATED ACTIVE',
    ntf_action: 'C',
    smp_ntf_id: 'n',
    ntf_sub_id: 's',
  };
  const routers = {
    notifierIds: ['n'],
    subscriptions: [{ subscriptionId: 's', notifierId: 'n', status: 'ACTIVE' }],
  };
  const told = (created: string[], deleted: string[] = []) => ({
    created: new Set(created),
    deletionAsked: new Set(deleted),
    deletionTold: new Set(deleted),
    hasForgotten: false,
  });
  expect(chargesOf(judgeSubscriptions([row], routers, told(['c'])))).toEqual([]);
  expect(chargesOf(judgeSubscriptions([row], routers, told(['c', 'd'])))).toEqual(['lost']);
  expect(chargesOf(judgeSubscriptions([row], routers, told(['c', 'd'], ['d'])))).toEqual([]);
  expect(chargesOf(judgeSubscriptions([row], routers, told(['c'], ['c'])))).toEqual(['wrong']);
  expect(disagreements([row, { ...row, conn_id: 'd' }], routers, false)).toHaveLength(1);
  expect(disagreements([], routers, false)).toHaveLength(1);
  expect(disagreements([row], { ...routers, notifierIds: [] }, false)).toHaveLength(1);
  // After a put-back a router may hold what no row names any more; what a row names is still judged.
  expect(disagreements([], routers, true)).toEqual([]);
  expect(disagreements([{ ...row, ntf_sub_id: null }], routers, true)).toHaveLength(2);
});

describe('outcomes', () => {
  let entries = 0;
  const tell = (id: string, kind: string, more: Record<string, string> = {}): ToldOutcome => ({
    entryId: `${NOW + (entries += 1)}-0`,
    fields: {
      ...{ event_id: `${id}/end`, kind, notification_id: id, occurred_at_ms: String(NOW) },
      ...more,
    },
    wasTrue: true,
  });
  const accepted = tell('1-0', 'accepted', { event_id: '1-0/accepted', routes: '2' });
  const published = tell('1-0', 'route_published', { event_id: '1-0/push/0/published', generation: '0' });
  const settled = tell('1-0', 'settled', { published: '1', skipped: '1', dead_lettered: '0' });
  const good: OutcomeCase = {
    told: [
      accepted,
      published,
      settled,
      tell('2-0', 'duplicate'),
      tell('3-0', 'conflict'),
      tell('4-0', 'malformed'),
    ],
    entries: ['1-0', '2-0', '3-0', '4-0'],
    routes: new Map([['1-0', 2]]),
    refusals: new Map([
      ['3-0', 'idempotency_conflict'],
      ['4-0', 'invalid_payload'],
    ]),
    mayRepeat: false,
  };
  const chargesIf = (change: Partial<OutcomeCase>) => chargesOf(judgeOutcomes({ ...good, ...change }));
  const without = (one: ToldOutcome) => good.told.filter((other) => other !== one);
  const inPlaceOf = (one: ToldOutcome, ...others: ToldOutcome[]) => [...without(one), ...others];
  const changed = (one: ToldOutcome, fields: Record<string, string>): ToldOutcome => ({
    ...one,
    fields: { ...one.fields, ...fields },
  });

  test.each([
    ['an end that is missing', { told: without(settled) }, 'lost'],
    ['a second end', { told: [...good.told, changed(settled, { event_id: '1-0/other' })] }, 'doubled'],
    ['an end before its time', { told: inPlaceOf(settled, { ...settled, wasTrue: false }) }, 'wrong'],
    [
      'an end that counts wrongly',
      { told: inPlaceOf(settled, changed(settled, { published: '2' })) },
      'wrong',
    ],
    [
      'an address',
      { told: inPlaceOf(published, changed(published, { route: 'email:a@example.com' }), settled) },
      'wrong',
    ],
    ['an invalid intent', { entries: good.entries.slice(0, 3) }, 'wrong'],
  ] satisfies [string, Partial<OutcomeCase>, string][])('Q1 %s is seen', (_, change, charge) => {
    expect(chargesIf(change)).toEqual([charge]);
  });
});
