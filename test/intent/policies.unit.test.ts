/** The pure rules of routes: ladder, offset, route slots, references, keys. */
import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { materializeRoutes as materializeIn } from '../../activities/intent/audience.ts';
import { handOffKey } from '../../activities/intent/hand-off.ts';
import type { Recipient } from '../../activities/intent/user-service.ts';
import { hashOfRouteRef, routeRefOf, searchableKey } from '../../api/ids.ts';
import { GALAXY } from '../../api/intent/galaxy.ts';
import { compareEntryIds } from '../../api/stream-ids.ts';
import { problemOfTexts } from '../../workflows/details.ts';
import { ladderDelayMs } from '../../workflows/policies.ts';
import { ADMIN_NOTIFICATION_TYPES, NOTIFICATION_TYPES, audiencesOf, materializeRoutes } from './galaxy.ts';

test('I2 entries of one millisecond are ordered by number, and of several by their time', () => {
  const ids = ['18446744073709551615-0', '10-2', '9-10', '9-2', '9-2', '0-0'];

  expect(ids.sort(compareEntryIds)).toEqual(['0-0', '9-2', '9-2', '9-10', '10-2', '18446744073709551615-0']);
});

test('I21 the seed ladder of 1 s to 5 min, and its bounds', () => {
  const delays = Array.from({ length: 11 }, (_, index) => ladderDelayMs(index + 1, 1_000, 300_000) / 1_000);
  expect(delays).toEqual([1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
  // A power that no number holds, and one delay for all.
  expect([ladderDelayMs(2_000, 1, 604_800_000), ladderDelayMs(1, 5, 5)]).toEqual([604_800_000, 5]);
});

test.each([{ reason: 'x'.repeat(501) }, { reason: 'a\0b' }, { reason: ['a'] }])(
  'I26 a pause or a resume is refused for its reason: %j',
  (request) => {
    expect(problemOfTexts(request, 'requestedBy', 'reason')).toContain('reason');
  },
);

describe('route slots', () => {
  const BUDGETS = { push: 3, email: 7 };
  /** Of the types of users in the seed's catalog, those without a push event. */
  const EMAIL_ALONE = ['lobby.invite.expired', 'lobby.race_name.registration_denied'];
  const userTypes = NOTIFICATION_TYPES.filter((type) => audiencesOf(type).includes('user'));
  const recipients: Recipient[] = [
    { userId: 'user-1', email: 'ada@example.com', locale: 'en' },
    { userId: 'a/b c', email: 'jonas@example.com', locale: 'en' },
  ];

  const slot = (routeId: string, status: string, maxAttempts: number, email: string) => {
    const [channel, ...to] = routeId.split(':');
    return { routeId, channel, recipientRef: to.join(':'), status, maxAttempts, email, locale: 'en' };
  };

  test.each(userTypes)(
    'I15 %s: every user gets both slots, skipped where the channel is not the type',
    (type) => {
      const push = EMAIL_ALONE.includes(type) ? 'skipped' : 'pending';
      expect(materializeRoutes(type, { kind: 'user', recipients }, BUDGETS)).toEqual(
        recipients.flatMap(({ userId, email }) => [
          slot(`push:user:${userId}`, push, 3, email),
          slot(`email:user:${userId}`, 'pending', 7, email),
        ]),
      );
    },
  );

  test('I15 a type that is pushed alone has a skipped e-mail slot', () => {
    const turn = GALAXY.types.get('game.turn.ready')!;
    const types = new Map(GALAXY.types).set('game.turn.ready', {
      ...turn,
      channels: { user: ['push'] as const, admin_email: [] },
    });
    const catalog = { ...GALAXY, types };
    const slots = materializeIn(catalog, 'game.turn.ready', { kind: 'user', recipients }, BUDGETS);
    expect(slots.map(({ channel, status }) => `${channel} ${status}`)).toEqual(
      recipients.flatMap(() => ['push pending', 'email skipped']),
    );
  });

  test.each(ADMIN_NOTIFICATION_TYPES)(
    'I14 I15 %s: administrators get e-mail, and a skipped push slot; without any, one skipped e-mail slot shows the gap',
    (type) => {
      const slotsOf = (emails: string[]) => materializeRoutes(type, { kind: 'admin_email', emails }, BUDGETS);
      const emails = ['one@example.com', 'two@example.com'];
      expect(slotsOf(emails)).toEqual(
        emails.flatMap((email) => [
          slot(`push:email:${email}`, 'skipped', 3, email),
          slot(`email:email:${email}`, 'pending', 7, email),
        ]),
      );
      expect(slotsOf([])).toEqual([
        { ...slot(`email:config:${type}`, 'skipped', 7, ''), email: null, locale: null },
      ]);
    },
  );
});

describe('references', () => {
  const channel = fc.constantFrom('push', 'email');
  const routeId = fc
    .tuple(
      channel,
      fc.oneof(
        fc.string({ unit: 'binary', minLength: 1, maxLength: 600 }),
        fc.emailAddress().map((email) => `email:${email}`),
        fc.stringMatching(/^user:[A-Za-z0-9_.:-]{1,140}$/),
        fc.stringMatching(/^~[0-9a-f]{32}$/),
      ),
    )
    .map(([name, ref]) => `${name}:${ref}`);

  test.each(['push:user:user-1', 'email:user:7f0c9a52-1d1e', 'email:config:geo.review_recommended'])(
    'I40 the plain route id %s stands for itself',
    (id) => {
      expect(routeRefOf(id)).toBe(id);
      expect(hashOfRouteRef(id)).toBeUndefined();
    },
  );

  test.each([
    'email:email:ada@example.com',
    'push:user:日本',
    'push:user:a/b c',
    `push:user:${'x'.repeat(116)}`,
    'push:user:a\n',
    'email:~0123456789abcdef0123456789abcdef',
  ])('I40 the route id %j is named by its MD5 hash', (id) => {
    const hash = createHash('md5').update(id).digest('hex');

    expect(routeRefOf(id)).toBe(`${id.slice(0, id.indexOf(':'))}:~${hash}`);
    expect(hashOfRouteRef(routeRefOf(id))).toBe(hash);
  });

  test('I40 references are short printable ASCII without addresses, and two routes never share one', () => {
    fc.assert(
      fc.property(routeId, routeId, (one, other) => {
        for (const id of [one, other]) {
          expect(routeRefOf(id)).toMatch(/^(push|email):[\x21-\x7e]{1,120}$/);
          expect(routeRefOf(id)).not.toContain('@');
          expect(hashOfRouteRef(routeRefOf(id)) === undefined).toBe(routeRefOf(id) === id);
        }
        expect(routeRefOf(one) === routeRefOf(other)).toBe(one === other);
      }),
    );
  });

  test('I40 security-18 a short printable key is searched as it is; any other, and what may be an address, by its SHA-256', () => {
    const hashed = (key: string) => `sha256:${createHash('sha256').update(key).digest('hex')}`;

    expect(searchableKey('game-7/turn 54 ~')).toBe('game-7/turn 54 ~');
    expect(searchableKey('x'.repeat(200))).toBe('x'.repeat(200));
    for (const key of ['x'.repeat(201), 'ü', 'a\tb', 'a\n', '日本', 'alice@example.com', '@'])
      expect(searchableKey(key)).toBe(hashed(key));
  });
});

test('intent-13 the key of a hand-off names no user, and differs for each route, notification and generation', () => {
  const keys = [
    handOffKey('1-0', 'push:user:ada', 1),
    handOffKey('1-0', 'email:email:ada@example.com', 1),
    handOffKey('1-0', 'push:user:bob', 1),
    handOffKey('2-0', 'push:user:ada', 1),
    handOffKey('1-0', 'push:user:ada', 2),
  ];
  expect(keys.filter((key) => /ada|bob/.test(key))).toEqual([]);
  expect(new Set(keys).size).toBe(5);
});
