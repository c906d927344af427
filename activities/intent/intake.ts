/**
 * Begins the work on intents that were read. Whatever was read before is looked for first, in the rows and in Temporal:
 * what is decided or under way is left alone, what a store has forgotten is begun again, and an entry that has only the
 * id of an earlier one is set aside.
 */
import type { WorkflowClient, WorkflowExecutionDescription } from '@temporalio/client';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { searchableKey } from '../../api/ids.ts';
import { isUrgentType } from '../../api/intent/catalog.ts';
import type { Intent, MalformedIntent, ParsedIntent } from '../../api/intent/entry.ts';
import { compareEntryIds } from '../../api/stream-ids.ts';
import type { DispatchMode } from '../../workflows/intent/contract.ts';
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { notificationAttributes } from '../../workflows/intent/search-attributes.ts';
import { beginEach } from './key-order.ts';
import type { Knowledge } from './known.ts';
import { findCancelled, findKnown } from './known.ts';
import { recordMalformed, refusedIntent, reusedIntent } from './malformed.ts';
import type { IntentMetrics } from './metrics.ts';
import { logFieldsOf } from './metrics.ts';
import type { Outcomes } from './outcomes.ts';
import { isTooLargeForTemporal, startNotification, startSlice } from './start.ts';
import { DECIDED } from './owner.ts';
import { noteUndecided } from './waiting.ts';
import type { FirstTry } from './acceptance.ts';
import { reasonOf } from '../reason.ts';
import { describe } from '../workflows.ts';

/** An urgent intent that is not delivered by then is left to its workflow, ms. */
const URGENT_TRY_MS = 250;
/** Of so many at once it is not asked whether they are cancelled: their workflows find out. */
const FEW = 10;

interface IntakeResources {
  db: Pool;
  workflows: WorkflowClient;
  log: Logger;
  metrics: IntentMetrics;
  outcomes: Outcomes;
  bridge: { dispatch: DispatchMode };
  /** Where urgent intents are tried before they have a workflow. */
  firstTry?: FirstTry;
}

/** What became of an entry: `started` now, `known` already, or `malformed`. */
export type Taken = 'started' | 'known' | 'malformed';

/** Of one read. */
export interface IntakeOptions {
  isUrgent: boolean;
  /** What rows say about entries that were read before. */
  known: ReadonlyMap<string, Knowledge>;
  /** Entries up to this id were read before. */
  readBefore: string;
}

export function createIntake(resources: IntakeResources) {
  const { db, workflows, log, metrics, outcomes, firstTry } = resources;
  const { dispatch } = resources.bridge;
  return { lookUp, cancelledOf, take, takeSlice };

  /**
   * @returns what rows say about those of these entries that were read before, and which of many are cancelled.
   * @throws ApplicationFailure of PostgreSQL.
   */
  async function lookUp(
    entries: readonly ParsedIntent[],
    readBefore: string,
  ): Promise<Map<string, Knowledge>> {
    const intents = entries.flatMap((entry) => (entry.ok ? [entry.intent] : []));
    const known = await findKnown(
      db,
      intents.filter((intent) => wasRead(intent, readBefore)),
    );
    for (const id of await cancelledOf(intents)) known.set(id, 'taken');
    return known;
  }

  /** @returns the ids of those that are cancelled, as far as PostgreSQL tells now: without it reading goes on. */
  async function cancelledOf(intents: readonly Intent[]): Promise<ReadonlySet<string>> {
    return intents.length <= FEW ? new Set() : findCancelled(db, intents).catch(() => new Set());
  }

  /**
   * Makes sure that an entry is recorded as malformed, decided, or worked on.
   *
   * @throws ApplicationFailure of PostgreSQL; what the Temporal client fails with.
   */
  async function take(entry: ParsedIntent, options: IntakeOptions): Promise<Taken> {
    const malformed = entry.ok ? await begin(entry.intent, options) : entry.malformed;
    if (typeof malformed === 'boolean') return malformed ? 'started' : 'known';
    const { recorded, isNew } = await recordMalformed(db, outcomes, malformed);
    logMalformed(recorded);
    if (isNew) {
      const { failureCode: failure_code, notificationType: notification_type, producer } = recorded;
      metrics.intentMalformed({ failure_code, notification_type, producer });
    }
    return 'malformed';
  }

  /**
   * The same for intents that were never read before, by one workflow for all of them.
   *
   * @returns what became of each, in the same order. Unless all are `started` as one slice, each is taken by itself: a
   * reader that died before it could save its offset has begun a slice from the same entry on, of whatever length.
   */
  async function takeSlice(intents: readonly Intent[], options: IntakeOptions): Promise<Taken[]> {
    try {
      if (await startSlice(workflows, intents)) {
        log.debug(
          {
            slice: intents[0]!.notificationId,
            last: intents.at(-1)!.notificationId,
            intents: intents.length,
          },
          'slice of notifications started',
        );
        return intents.map(() => 'started');
      }
    } catch (error) {
      if (!isTooLargeForTemporal(error)) throw error;
    }
    const known = await findKnown(db, intents);
    return beginEach(db, intents, (intent) => take({ ok: true, intent }, { ...options, known }));
  }

  /**
   * Makes sure that somebody works on an intent, or that it is decided.
   *
   * @returns why nobody ever will, when that is so; otherwise whether a workflow was started for it.
   * @throws ApplicationFailure of PostgreSQL; what the Temporal client fails with.
   */
  async function begin(intent: Intent, options: IntakeOptions): Promise<MalformedIntent | boolean> {
    const { isUrgent } = options;
    const before = options.known.get(intent.notificationId);
    if (before) return refusalOf(intent, before);
    if (firstTry && isUrgentType(intent.notificationType)) await tryAtOnce(firstTry, intent);
    try {
      if (await startNotification(workflows, intent, { dispatch, isUrgent })) {
        log.debug(logFieldsOf(intent), 'notification started');
        return true;
      }
      return await goOn(intent, options);
    } catch (error) {
      if (!isTooLargeForTemporal(error)) throw error;
      const reason = error.cause instanceof Error ? error.cause.message : 'it is too large';
      return refusedIntent(intent, 'entry_too_large', `Temporal does not take the intent: ${reason}`);
    }
  }

  /**
   * Delivers what cannot wait for Temporal, where a backlog may lie: the entry is behind the offset until its workflow is
   * started, which finds what was done.
   */
  async function tryAtOnce(attempt: FirstTry, intent: Intent): Promise<void> {
    const timeUp = sleep(URGENT_TRY_MS, undefined, { ref: false });
    const tried = attempt(intent, timeUp).catch((error: unknown) =>
      log.debug({ ...logFieldsOf(intent), reason: reasonOf(error) }, 'urgent intent not delivered at once'),
    );
    await Promise.race([tried, timeUp]);
  }

  /** Temporal has a workflow of this id. */
  async function goOn(intent: Intent, { isUrgent }: IntakeOptions): Promise<MalformedIntent | boolean> {
    const known = (await findKnown(db, [intent])).get(intent.notificationId);
    if (known) return refusalOf(intent, known);
    const execution = await describe(workflows, notificationWorkflowId(intent.notificationId));
    if (execution && !isOf(execution, intent)) return refusalOf(intent, 'reused');
    // Only a store that has fallen back has no row of what a workflow has decided.
    if (execution === undefined || DECIDED.includes(execution.status.name)) {
      await startNotification(workflows, intent, { dispatch, isUrgent, isAgain: true });
      log.warn(logFieldsOf(intent), 'notification started again, its record is gone');
      return true;
    }
    if (execution.status.name === 'RUNNING') {
      // It may be past its acceptance, and fail for want of the record: the row says that it is not done. A reader that died
      // before it could save its offset has left such a one, too.
      await noteUndecided(db, intent, 'read again, its workflow runs');
    }
    return false;
  }

  function logMalformed({ streamEntryId, failureCode, failureMessage, ...rest }: MalformedIntent): void {
    log.warn(
      {
        notification_id: streamEntryId,
        ...(rest.notificationType === undefined ? {} : { notification_type: rest.notificationType }),
        ...(rest.producer === undefined ? {} : { producer: rest.producer }),
        ...(rest.idempotencyKey === undefined ? {} : { idempotency_key: searchableKey(rest.idempotencyKey) }),
        outcome: 'malformed',
        failure_code: failureCode,
        reason: failureMessage,
      },
      'malformed intent recorded',
    );
  }
}

const wasRead = ({ notificationId }: Intent, readBefore: string): boolean =>
  compareEntryIds(notificationId, readBefore) <= 0;

const refusalOf = (intent: Intent, known: Knowledge): MalformedIntent | false =>
  known === 'taken' ? false : reusedIntent(intent);

function isOf({ typedSearchAttributes }: WorkflowExecutionDescription, intent: Intent): boolean {
  const wanted = notificationAttributes({ ...intent, idempotencyKey: searchableKey(intent.idempotencyKey) });
  return wanted.every(({ key, value }) => typedSearchAttributes.get(key) === value);
}
