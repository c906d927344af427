/** What a recipient got, and what not and why: over intents, mobile pushes and account callbacks. */
import { given } from '../api/given.ts';
import { loadOffset } from '../api/intent/stream.ts';
import { entryIdAfter } from '../api/stream-ids.ts';
import { timeOf } from '../api/text.ts';
import { findCallbackCauses } from './account-callback/places.ts';
import { causeOf } from './errors.ts';
import { findIntentCauses } from './intent/why.ts';
import { DEFAULT_LIMIT } from './lists.ts';
import { findPushCauses } from './mobile-push/jobs.ts';
import type { Answer, FoundCause, Question } from './places.ts';
import type { OperatorResources } from './resources.ts';
import { linkField } from './resources.ts';

export type { Answer } from './places.ts';

/** How far back `why` looks by default, ms. */
const DEFAULT_WHY_MS = 7 * 86_400_000;

export interface WhyOptions {
  /** Default: DEFAULT_WHY_MS ago. */
  since?: Date;
  /** Intents of this notification type only. */
  type?: string;
  /** Default: 50. */
  limit?: number;
  /** `NOTIFICATION_RECORD_RETENTION`, ms: older rows are deleted, and the answer says so. */
  retentionMs?: number;
}

export interface Why {
  recipient: string;
  since: Date;
  /** Newest first; never empty. */
  answers: Answer[];
  /** More than `limit` were found. */
  hasMore: boolean;
  /** What could not be found out, as sentences. */
  doubts: string[];
}

/**
 * @param recipient a user's id, or the address of an administrator.
 * @throws what PostgreSQL fails with. Redis is asked too, and not needed.
 */
export async function why(
  resources: OperatorResources,
  recipient: string,
  options: WhyOptions = {},
): Promise<Why> {
  const { since = new Date(Date.now() - DEFAULT_WHY_MS), limit = DEFAULT_LIMIT, type, retentionMs } = options;
  const question: Question = { recipient, since, limit: limit + 1, ...given({ type }) };
  const of = async (kind: Answer['kind'], found: Promise<FoundCause[]>) =>
    (await found).map((cause) => answerOf(resources, kind, cause));
  const [doubts, ...recorded] = await Promise.all([
    unreadDoubts(resources),
    of('intent', findIntentCauses(resources, question)),
    // They are of no notification type.
    ...(type === undefined
      ? [
          of('mobile-push', findPushCauses(resources, question)),
          of('account-callback', findCallbackCauses(resources, question)),
        ]
      : []),
  ]);
  const found = recorded.flat().toSorted((one, other) => other.at.getTime() - one.at.getTime());
  const end = found.length > limit ? undefined : endOf(question, found.length === 0, retentionMs);
  return {
    recipient,
    since,
    answers: [...found.slice(0, limit), ...(end ? [answerOf(resources, 'intent', end)] : [])],
    hasMore: found.length > limit,
    doubts,
  };
}

const answerOf = (
  resources: OperatorResources,
  kind: Answer['kind'],
  { workflowId, ...found }: FoundCause,
): Answer => ({
  kind,
  ...given(found),
  ...(workflowId === undefined ? {} : linkField(resources, workflowId)),
});

/** The last answer: why there is no older one. */
function endOf(
  { recipient, since, type }: Question,
  isNothing: boolean,
  retentionMs = Infinity,
): FoundCause | undefined {
  const horizonMs = Date.now() - retentionMs;
  if (since.getTime() < horizonMs) {
    const at = new Date(horizonMs);
    return {
      cause: 'forgotten',
      at,
      sentence: `what was accepted before ${timeOf(at)} is forgotten: records are kept no longer`,
    };
  }
  if (!isNothing) return undefined;
  return {
    cause: 'never_seen',
    at: since,
    sentence: `nothing for ${recipient}${type === undefined ? '' : ` of type ${type}`} was seen since ${timeOf(since)}: no producer has asked for it, or one asked for another id`,
  };
}

/** An intent has a row as soon as its entry is read. */
async function unreadDoubts({ redis, intentsStream: stream }: OperatorResources): Promise<string[]> {
  try {
    const unread = await entryIdAfter(redis, stream, await loadOffset(redis, stream));
    return unread === undefined
      ? []
      : [
          `${stream} has entries that are not read yet, and were not looked into: galaxy-notify bridge status`,
        ];
  } catch (error) {
    return [`Redis did not say whether entries of ${stream} are still to be read: ${causeOf(error)}`];
  }
}
