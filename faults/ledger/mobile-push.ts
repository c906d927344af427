/** The judge of mobile pushes: what each producer was told against what FCM was sent, device by device. */
import type { Posting } from './account.ts';
import { acknowledgedIds, toldCounts } from './account.ts';
import { sameValue } from './comparison.ts';
import type { Spoiled, TakenSend, Window } from './excuse.ts';
import { excuseOf, lateOf, lengthOf } from './excuse.ts';
import type { Verdict } from './verdict.ts';
import { noVerdict } from './verdict.ts';

export interface SentJob {
  /** Ends its text, with the number of the attempt: `mark-17`. */
  mark: string;
  userId: string;
  title: string;
  channel: string;
  data: Record<string, unknown>;
  form: 'flat' | 'payload' | 'cut-off';
}

/** One request that FCM got. */
export interface FcmRequest extends TakenSend {
  token: string;
  message: Record<string, unknown>;
  isAccepted: boolean;
}

export interface MobileCase {
  postings: readonly Posting<SentJob>[];
  /** Tokens of each user. */
  devices: ReadonlyMap<string, readonly string[]>;
  requests: readonly FcmRequest[];
  /** Status by the id of the job's entry. */
  rows: ReadonlyMap<string, string>;
  spoiled: readonly Spoiled[];
}

/** No JSON. */
const CUT_OFF = '{"title":';

/** What is shown: no two attempts to put a job in have the same. */
export const bodyOf = ({ mark }: SentJob, attempt: number): string => `what is shown ${mark}.${attempt}`;

export function jobEntryOf(sent: SentJob, attempt: number): [string, string][] {
  const { userId, title, channel, data, form } = sent;
  const fields = { userId, title, body: bodyOf(sent, attempt), channel };
  if (form === 'cut-off') return [['payload', CUT_OFF]];
  if (form === 'payload') return [['payload', JSON.stringify({ ...fields, data })]];
  return Object.entries({ ...fields, data: JSON.stringify(data) });
}

export function judgeMobilePushes({ postings, devices, requests, rows, spoiled }: MobileCase): Verdict {
  const verdict = noVerdict();
  const attempts = new Map(
    postings.flatMap((posting) =>
      posting.attempts.map((_, index) => [bodyOf(posting.content, index), { posting, index }] as const),
    ),
  );
  /** Accepted requests by job's attempt and device. */
  const sends = new Map<string, FcmRequest[]>();
  for (const request of requests) judgeOne(request);
  const losses = spoiled.filter(({ isLoss }) => isLoss);
  let excused = 0;
  for (const [key, list] of sends) judgeRepeats(key, list);
  for (const posting of postings) judgePosting(posting);

  const excuses = requests.flatMap((request): Window[] => {
    if (!request.isAccepted) return [];
    return [excuseOf(request, spoiled), lateOf(request, spoiled)].filter((window) => window !== undefined);
  });
  verdict.excusedMs = lengthOf(excuses);
  verdict.figures = {
    jobs: postings.length,
    ...toldCounts(postings),
    pushes: sends.size,
    'sends at a moment that would excuse a double': excuses.length,
    'doubles that were excused': excused,
  };
  return verdict;

  function judgeOne({ token, message, isAccepted, ...times }: FcmRequest): void {
    const { notification, data } = message as {
      notification?: { body?: string };
      data?: Record<string, string>;
    };
    const found = attempts.get(notification?.body ?? '');
    if (!found) {
      verdict.altered.push(`a push to ${token} shows ${JSON.stringify(notification)}, which no job sent`);
      return;
    }
    const { content } = found.posting;
    const name = `push ${content.mark}.${found.index}`;
    if (content.form === 'cut-off') verdict.wrong.push(`${name} is of a job that had to be refused`);
    if (!devices.get(content.userId)?.includes(token))
      verdict.misdirected.push(`${name} for ${content.userId} goes to ${token}`);
    const expiry = expiryIn(message);
    const due = messageOf(content, found.index, { token, pushId: data?.['push_id'], ...expiry });
    if (!sameValue(message, due))
      verdict.altered.push(`${name} is ${JSON.stringify(message)}, not ${JSON.stringify(due)}`);
    if (!isAccepted) return;
    const key = `${content.mark}.${found.index} ${token}`;
    sends.set(key, [...(sends.get(key) ?? []), { token, message, isAccepted, ...times }]);
  }

  function judgeRepeats(key: string, list: readonly FcmRequest[]): void {
    const ids = new Set(list.map(({ message }) => (message['data'] as Record<string, string>)['push_id']));
    if (ids.size > 1 || ids.has(undefined))
      verdict.doubled.push(`${key} has the push ids ${[...ids].join()}`);
    const ordered = list.toSorted((a, b) => a.at - b.at);
    for (const [index, send] of ordered.slice(0, -1).entries()) {
      const again = ordered[index + 1]!;
      if (excuseOf(send, spoiled) ?? lateOf(again, spoiled)) excused += 1;
      else if (losses.some(({ startedAt }) => startedAt <= again.at)) verdict.repeated += 1;
      else
        verdict.doubled.push(
          `${key} was sent again after ${again.at - send.at} ms, and nothing was in the way`,
        );
    }
  }

  function judgePosting(posting: Posting<SentJob>): void {
    const { content } = posting;
    const tokens = content.form === 'cut-off' ? [] : (devices.get(content.userId) ?? []);
    const due = content.form === 'cut-off' ? 'malformed' : tokens.length > 0 ? 'sent' : 'no_tokens';
    const last = posting.attempts.findLastIndex(({ told }) => told.kind === 'acknowledged');
    for (const token of last < 0 ? [] : tokens) {
      if (!sends.has(`${content.mark}.${last} ${token}`))
        verdict.lost.push(`${content.mark} did not get to ${token}`);
    }
    // Of one that was put in again after a loss the last one counts.
    const id = acknowledgedIds(posting).at(-1);
    if (id === undefined) return;
    const status = rows.get(id);
    if (status === undefined) verdict.lost.push(`job ${id} has no row`);
    else if (status !== due) verdict.wrong.push(`job ${id} is ${status}, not ${due}`);
  }
}

/** What FCM must get, by the reference: visible text, data as strings with channel, and a part for each platform. */
/** A day from the arrival of the job, which is the default; a process whose clock was moved back adds another. */
const MOST_TTL_SECONDS = 2 * 86_400;
const LEAST_TTL_SECONDS = 86_400 - 3_600;

interface Expiry {
  ttlSeconds: number;
  expiresAt: string;
}

/** @returns when a push says that it expires; zeros, which no push is due to have, when that is out of bounds. */
function expiryIn(message: object): Expiry {
  const { android, apns } = message as {
    android?: { ttl?: string };
    apns?: { headers?: Record<string, string> };
  };
  const ttlSeconds = Number(/^(\d+)s$/.exec(android?.ttl ?? '')?.[1]);
  const expiresAt = apns?.headers?.['apns-expiration'] ?? '';
  const isBounded =
    ttlSeconds > LEAST_TTL_SECONDS && ttlSeconds <= MOST_TTL_SECONDS && /^\d{10}$/.test(expiresAt);
  return isBounded ? { ttlSeconds, expiresAt } : { ttlSeconds: 0, expiresAt: '' };
}

function messageOf(
  sent: SentJob,
  attempt: number,
  { token, pushId, ttlSeconds, expiresAt }: { token: string; pushId: string | undefined } & Expiry,
): object {
  const { title, channel, data } = sent;
  const strings = Object.fromEntries(
    Object.entries(data).map(([name, value]) => [
      name,
      typeof value === 'string' ? value : JSON.stringify(value),
    ]),
  );
  return {
    token,
    notification: { title, body: bodyOf(sent, attempt) },
    data: { ...strings, channel, push_id: pushId },
    android: {
      priority: 'high',
      ttl: `${ttlSeconds}s`,
      notification: { tag: pushId, channel_id: channel },
    },
    apns: {
      headers: { 'apns-priority': '10', 'apns-collapse-id': pushId, 'apns-expiration': expiresAt },
      payload: { aps: { 'mutable-content': 1 } },
    },
    webpush: { headers: { Urgency: 'high', Topic: pushId, TTL: String(ttlSeconds) } },
  };
}
