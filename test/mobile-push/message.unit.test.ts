/** The message of a job (seed mobile-push, "FCM Message Format") and what is refused before anything is sent. */
import fc from 'fast-check';
import type { MobileJobContent } from '../../api/mobile-push/job.ts';
import type { MobileMessage } from '../../api/mobile-push/message.ts';
import { MAX_PAYLOAD_BYTES, mobileMessage, payloadBytes } from '../../api/mobile-push/message.ts';

const PUSH_ID = '0123456789abcdef0123456789abcdef';
const CONTENT: MobileJobContent = { title: 'Turn 54', body: 'Your move', channel: 'game', data: {} };

const build = (content: Partial<MobileJobContent>, now?: number) =>
  mobileMessage({ ...CONTENT, ...content }, PUSH_ID, now) as { message: MobileMessage; problem?: string };
const messageOf = (content: Partial<MobileJobContent>) => build(content).message;
const problemOf = (content: Partial<MobileJobContent>) => build(content).problem;

describe('format', () => {
  test('kinds-F12 M5 M8 one message for Android, iOS and the web, of which a repeat replaces the first', () => {
    expect(messageOf({ badge: 3, data: { game_id: 'game-7' } })).toEqual({
      notification: { title: 'Turn 54', body: 'Your move' },
      data: { game_id: 'game-7', channel: 'game', push_id: PUSH_ID },
      android: { priority: 'high', notification: { tag: PUSH_ID, channel_id: 'game' } },
      apns: {
        headers: { 'apns-priority': '10', 'apns-collapse-id': PUSH_ID },
        payload: { aps: { badge: 3, 'mutable-content': 1 } },
      },
      webpush: { headers: { Urgency: 'high', Topic: PUSH_ID } },
    });
  });

  test.each([
    ['an hour ahead', 3_600_000, 3_600],
    ['half a second ahead', 500, 0],
    ['past', -1_000, 0],
    ['a year ahead', 365 * 86_400_000, 28 * 86_400],
  ])('bug-P10 FCM keeps a push whose expiry is %s no longer than that', (_when, leftMs, seconds) => {
    const [now, FOUR_WEEKS_MS] = [1_790_000_000_000, 28 * 86_400_000];
    const endMs = now + Math.min(leftMs, FOUR_WEEKS_MS);
    expect(build({ expiresAtMs: now + leftMs }, now).message).toMatchObject({
      android: { ttl: `${seconds}s` },
      apns: { headers: { 'apns-expiration': String(Math.floor(endMs / 1_000)) } },
      webpush: { headers: { TTL: String(seconds) } },
    });
  });

  test('M5 a push of normal priority is so on every platform', () => {
    const { android, apns, webpush } = messageOf({ priority: 'normal' });
    expect([android.priority, apns.headers['apns-priority'], webpush.headers['Urgency']]).toEqual([
      'normal',
      '5',
      'normal',
    ]);
  });

  test('kinds-M1 M5 a push without title and body shows nothing, and wakes the app', () => {
    const built = mobileMessage({ data: { sync: 1 } }, PUSH_ID);
    expect(built).toEqual({
      message: {
        data: { sync: '1', push_id: PUSH_ID },
        android: { priority: 'high' },
        apns: {
          headers: { 'apns-priority': '5', 'apns-collapse-id': PUSH_ID, 'apns-push-type': 'background' },
          payload: { aps: { 'content-available': 1 } },
        },
        webpush: { headers: { Urgency: 'high', Topic: PUSH_ID } },
      },
    });
  });

  test('M5 a title or a body alone is shown', () => {
    for (const shown of [{ title: 'Turn 54' }, { body: 'Your move' }]) {
      const built = mobileMessage({ ...shown, data: {} }, PUSH_ID);
      expect(built).toMatchObject({
        message: {
          notification: shown,
          android: { notification: { tag: PUSH_ID } },
          apns: { payload: { aps: { 'mutable-content': 1 } } },
        },
      });
    }
  });

  test('M5 the badge is left alone without one, and taken away with 0', () => {
    expect(messageOf({}).apns.payload.aps).toEqual({ 'mutable-content': 1 });
    expect(messageOf({ badge: 0 }).apns.payload.aps).toEqual({ badge: 0, 'mutable-content': 1 });
  });

  test('M5 channel and push id replace data fields of the same name', () => {
    expect(messageOf({ data: { channel: 'theirs', push_id: 7 } }).data).toEqual({
      channel: 'game',
      push_id: PUSH_ID,
    });
  });

  test('M5 whatever JSON the data are, each field arrives as a string that tells its value', () => {
    const dictionary = fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 3 }));
    fc.assert(
      fc.property(dictionary, (data) => {
        const { problem, message } = build({ data });
        if (problem !== undefined) return expect(problem).toMatch(/reserved|bytes/);
        const texts = Object.entries(data).map(([key, value]) => [
          key,
          typeof value === 'string' ? value : JSON.stringify(value),
        ]);
        expect(message.data).toEqual({ ...Object.fromEntries(texts), channel: 'game', push_id: PUSH_ID });
        expect(payloadBytes(message)).toBeLessThanOrEqual(MAX_PAYLOAD_BYTES);
      }),
    );
  });
});

describe('what is refused', () => {
  const RESERVED =
    'from message_type collapse_key gcm gcm. gcm.n.e gcm.notification.title google. google.sent_time';
  test.each(RESERVED.split(' '))('M5 the data key %s, which FCM keeps for itself', (key) => {
    expect(problemOf({ data: { fine: 1, [key]: 'x' } })).toBe(`data key "${key}" is reserved by FCM`);
  });

  test.each('From from_user google googles gcmail my.google.key title notification'.split(' '))(
    'M5 but not %s',
    (key) => expect(problemOf({ data: { [key]: 'x' } })).toBeUndefined(),
  );

  test('M5 a payload of more than 4,096 bytes, and the size is said', () => {
    const room = MAX_PAYLOAD_BYTES - payloadBytes(messageOf({ data: { filler: '' } }));

    expect(problemOf({ data: { filler: 'x'.repeat(room) } })).toBeUndefined();
    expect(problemOf({ data: { filler: 'x'.repeat(room + 1) } })).toBe(
      'payload is 4097 bytes long, FCM takes 4096',
    );
  });

  test.each([
    ['title', { title: '€'.repeat(1_400) }],
    ['body', { body: '€'.repeat(1_400) }],
    ['channel', { channel: '€'.repeat(1_400) }],
    ['key', { data: { ['€'.repeat(1_400)]: 1 } }],
    ['object', { data: { list: Array.from({ length: 1_400 }, () => 100) } }],
  ])('M5 bytes count, not characters, and the %s counts', (_what, content) => {
    expect(problemOf(content)).toMatch(/^payload is \d{4} bytes long, FCM takes 4096$/);
  });

  test('bug-P11 M5 escapes of JSON do not count: FCM counts keys and values, and has the last word', () => {
    expect(problemOf({ body: `${'x'.repeat(2_800)}${'\n'.repeat(700)}` })).toBeUndefined();
    expect(problemOf({ data: { list: [], text: '"'.repeat(3_900) } })).toBeUndefined();
    expect(payloadBytes({ notification: { title: 'é', body: '\n' }, data: { k: '"' } })).toBe(5);
  });
});
