/**
 * From a job to the message that FCM gets: one message for Android, iOS and
 * the web. What FCM would refuse is refused here, before anything is sent: its own refusal names neither key nor size
 * and looks like that of a bad token. Pure.
 */
import { given } from '../given.ts';
import type { EntryFields } from '../text.ts';
import { sizeOf } from '../text.ts';
import type { MobileJobContent, ParsedMobileJob } from './job.ts';
import { malformedJob, parseMobileJob } from './job.ts';

/** A message as FCM's HTTP v1 API takes it, without the token that it goes to. */
export interface MobileMessage {
  notification?: { title?: string; body?: string };
  data: Record<string, string>;
  android: { priority: string; ttl?: string; notification?: { tag: string; channel_id?: string } };
  apns: { headers: Record<string, string>; payload: { aps: Record<string, number> } };
  webpush: { headers: Record<string, string> };
}

/** As long as every push id, for the size of the message. */
const SOME_PUSH_ID = '0'.repeat(32);

/** FCM: "Maximum payload for both message types is 4096 bytes". */
export const MAX_PAYLOAD_BYTES = 4_096;

/** APNs' own numbers: immediately, or when the device's power allows. */
const APNS_PRIORITIES = { high: '10', normal: '5' } as const;

/** FCM keeps no push for longer. */
const LONGEST_TTL_SECONDS = 28 * 86_400;

/**
 * Data keys that FCM keeps for itself: from the reference of `Message.data`, and from the description of
 * INVALID_ARGUMENT (`gcm`). `collapse_key` is allowed there, but its value would be replaced without a word.
 */
const RESERVED_KEYS = new Set(['from', 'message_type', 'collapse_key', 'gcm']);
const RESERVED_PREFIXES = ['google.', 'gcm.'];

/** Checks one stream entry, and whether FCM would take what it asks for: all that the service checks. Never throws. */
export function checkedMobileJob(
  entryId: string,
  fields: EntryFields,
  size = sizeOf(fields),
): ParsedMobileJob {
  const parsed = parseMobileJob(entryId, fields, size);
  if (!parsed.ok) return parsed;
  const message = mobileMessage(parsed.job.content, SOME_PUSH_ID);
  if (!('problem' in message)) return parsed;
  const { userId } = parsed.job;
  const { problem } = message;
  return { ok: false, malformed: malformedJob(entryId, fields, size, 'invalid_message', problem, userId) };
}

/**
 * Builds the message of a job. Data are all fields of the job's data as strings (numbers, booleans, null, lists and
 * objects as JSON), plus `channel`, if there is one, and `push_id`, which replace fields of the same name: apps rely on
 * them. Without title and body nothing is shown: the app is woken, as APNs demands it of a silent push.
 *
 * @param pushId the same for every repeat of a push: a repeat replaces the first one, and an app can drop it. 32
 *   characters of base64url: the web takes no more, APNs 64 bytes.
 * @param now ms since the epoch: FCM keeps a push from then on until it expires, or for four weeks.
 * @returns the message, or the problem in words that name the key or the size.
 */
export function mobileMessage(
  content: MobileJobContent,
  pushId: string,
  now = Date.now(),
): { message: MobileMessage } | { problem: string } {
  const { title, body, channel, badge, priority = 'high', expiresAtMs } = content;
  const reserved = Object.keys(content.data).find(isReserved);
  if (reserved !== undefined) return { problem: `data key ${JSON.stringify(reserved)} is reserved by FCM` };

  const isSilent = title === undefined && body === undefined;
  const notification = isSilent ? {} : { notification: given({ title, body }) };
  const data = { ...stringified(content.data), ...given({ channel }), push_id: pushId };
  const bytes = payloadBytes({ ...notification, data });
  if (bytes > MAX_PAYLOAD_BYTES) {
    return { problem: `payload is ${bytes} bytes long, FCM takes ${MAX_PAYLOAD_BYTES}` };
  }
  // Android shows something for whatever has a part `notification`.
  const ofAndroid = { notification: given({ tag: pushId, channel_id: channel }) };
  const lifetime = expiresAtMs === undefined ? undefined : lifetimeOf(expiresAtMs, now);
  // APNs takes a push without alert and badge with normal priority only.
  const isBackground = isSilent && badge === undefined;
  return {
    message: {
      ...notification,
      data,
      android: given({ priority, ttl: lifetime && `${lifetime.seconds}s`, ...(isSilent ? {} : ofAndroid) }),
      apns: {
        headers: given({
          'apns-expiration': lifetime?.expiration,
          'apns-priority': isBackground ? APNS_PRIORITIES.normal : APNS_PRIORITIES[priority],
          'apns-collapse-id': pushId,
          'apns-push-type': isBackground ? 'background' : undefined,
        }),
        payload: {
          aps: { ...given({ badge }), [isSilent ? 'content-available' : 'mutable-content']: 1 },
        },
      },
      webpush: {
        headers: given({ Urgency: priority, Topic: pushId, TTL: lifetime?.seconds.toString() }),
      },
    },
  };
}

/** For how long FCM keeps a push, and until when APNs does, as it writes it. */
const lifetimeOf = (expiresAtMs: number, now: number) => ({
  seconds: Math.min(LONGEST_TTL_SECONDS, Math.max(0, Math.floor((expiresAtMs - now) / 1_000))),
  expiration: String(Math.floor(Math.min(expiresAtMs, now + LONGEST_TTL_SECONDS * 1_000) / 1_000)),
});

/**
 * The size of what is shown, and of keys and values of the data, UTF-8 bytes. FCM does not say how it counts, and has the last
 * word: words of APNs and of FCM come to it on the way to iOS, so that the largest that pass here may be refused there.
 */
export function payloadBytes({
  notification = {},
  data = {},
}: Partial<Pick<MobileMessage, 'notification' | 'data'>>): number {
  return Buffer.byteLength([Object.values(notification), Object.entries(data)].flat(2).join(''));
}

function isReserved(key: string): boolean {
  return RESERVED_KEYS.has(key) || RESERVED_PREFIXES.some((prefix) => key.startsWith(prefix));
}

/** FCM takes strings only. From entries, so that a field named `__proto__` becomes a property like any other. */
function stringified(data: Record<string, unknown>): Record<string, string> {
  const fields = Object.entries(data).map(([key, value]) => [
    key,
    typeof value === 'string' ? value : JSON.stringify(value),
  ]);
  return Object.fromEntries(fields) as Record<string, string>;
}
