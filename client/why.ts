/** What a recipient got, and what not and why: over intents, mobile pushes and account callbacks. */
import { callbackAnswers } from './account-callback/why.ts';
import type { Answer, Question } from './causes.ts';
import { timeOf } from './causes.ts';
import { causeOf } from './errors.ts';
import { intentAnswers, unreadAnswers } from './intent/why.ts';
import { DEFAULT_LIMIT } from './lists.ts';
import { mobileAnswers } from './mobile-push/why.ts';
import type { OperatorResources } from './resources.ts';

export type { Answer } from './causes.ts';

/** How far back is looked when nobody says otherwise, ms. */
export const DEFAULT_WHY_MS = 7 * 86_400_000;

export interface WhyOptions {
  /** Default: DEFAULT_WHY_MS ago. */
  since?: Date;
  /** Intents of this notification type only. */
  type?: string;
  /** Default: 50. */
  limit?: number;
  /** `NOTIFICATION_RECORD_RETENTION`, ms: what is older is forgotten, and the answer says so. */
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
  const question: Question = { recipient, since, limit: limit + 1, ...(type === undefined ? {} : { type }) };
  const [unread, ...recorded] = await Promise.all([
    unreadAnswers(resources, question).catch((error: unknown) => causeOf(error)),
    intentAnswers(resources, question),
    // They are of no notification type.
    ...(type === undefined ? [mobileAnswers(resources, question), callbackAnswers(resources, question)] : []),
  ]);
  // What is urgent has been begun before it was read.
  const begun = new Set(recorded.flat().map(({ id }) => id));
  const found = [
    ...recorded.flat(),
    ...(typeof unread === 'string' ? [] : unread.answers.filter(({ id }) => !begun.has(id))),
  ].toSorted((one, other) => other.at.getTime() - one.at.getTime());
  const ofNothing = endOf(question, found.length === 0, retentionMs);
  return {
    recipient,
    since,
    answers: [...found.slice(0, limit), ...(found.length > limit ? [] : ofNothing)],
    hasMore: found.length > limit,
    doubts: doubtsOf(unread, resources.intentsStream),
  };
}

/** What stands behind the last answer: why there is no older one. */
function endOf({ recipient, since, type }: Question, isNothing: boolean, retentionMs?: number): Answer[] {
  const horizon = retentionMs === undefined ? undefined : new Date(Date.now() - retentionMs);
  if (horizon && since < horizon) {
    return [
      {
        kind: 'intent',
        cause: 'forgotten',
        at: horizon,
        sentence: `what was accepted before ${timeOf(horizon)} is forgotten: records are kept no longer`,
      },
    ];
  }
  if (!isNothing) return [];
  return [
    {
      kind: 'intent',
      cause: 'never_seen',
      at: since,
      sentence: `nothing for ${recipient}${type === undefined ? '' : ` of type ${type}`} was seen since ${timeOf(since)}: no producer has asked for it, or one asked for another id`,
    },
  ];
}

function doubtsOf(unread: Awaited<ReturnType<typeof unreadAnswers>> | string, stream: string): string[] {
  if (typeof unread === 'string')
    return [`Redis did not say what of ${stream} is still to be read: ${unread}`];
  if (unread.notLookedInto === 0) return [];
  return [
    `about ${unread.notLookedInto} more entries of ${stream} are not read yet, and were not looked into`,
  ];
}
