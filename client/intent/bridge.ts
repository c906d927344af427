/**
 * The reader of the intent stream, as it shows on the pending activity of its workflow. Pausing is Temporal's pause of
 * that activity: it is part of the workflow's state and so survives restarts of the service and of Temporal.
 */
import { randomUUID } from 'node:crypto';
import type { BridgeProgress } from '../../workflows/intent/contract.ts';
import { bridgeWorkflowId } from '../../workflows/intent/contract.ts';
import { byAuthor } from '../actions.ts';
import { NotFoundError, OperationFailedError } from '../errors.ts';
import { withoutNulls } from '../lists.ts';
import { bounded, dateOf, decoded, describe, pendingActivityOf, waitUntil } from '../temporal.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';

/** Activity type, as activities/intent/reader.ts names it. */
const READER = 'bridgeStream';

/** `temporal.api.enums.v1.PendingActivityState`; the enum is not among the client's exports. */
const STATES = ['unknown', 'waiting', 'reading', 'stopping', 'paused', 'pausing'] as const;

/** A reader looks every two seconds whether it is to pause; one that has died is noticed by others within some ten. */
const CONFIRMATION_LIMIT_MS = 25_000;

const isReader = ({ activityType }: { activityType?: { name?: string | null } | null }): boolean =>
  activityType?.name === READER;

export interface BridgeStatus {
  stream: string;
  workflowId: string;
  /**
   * `reading`: a worker has it. `waiting`: no worker has it, because none runs or the last attempt failed. `pausing`:
   * pause was requested and the reader has not stopped yet. `stopping`: cancellation was requested.
   */
  state: (typeof STATES)[number] | 'not running';
  isPaused: boolean;
  /** Who paused it, since when, and why, as Temporal kept it. */
  pause?: { by: string; since?: Date; reason: string };
  /** Which attempt at reading this is; it grows with each handover. */
  attempt?: number;
  /** The process that has or last had it: pid@host. */
  worker?: string;
  /** Of the last heartbeat, so by a reader that stopped from before it did. */
  progress?: BridgeProgress;
  heartbeatAt?: Date;
  /** Why the attempt before ended; a hand-over in good order is no failure. */
  lastFailure?: string;
  nextAttemptAt?: Date;
  link?: string;
}

/** What a call about the reader's activity names. */
interface ReaderCall {
  namespace: string;
  execution: { workflowId: string };
  identity: string;
  id: string;
}

export function bridgeOperations(resources: OperatorResources) {
  const { temporal, namespace, intentsStream } = resources;
  const workflowId = bridgeWorkflowId(intentsStream);

  return {
    status,

    /**
     * Stops intake: entries wait in Redis, accepted notifications are still delivered. Lasts until an operator resumes it.
     *
     * @returns the status once the reader has stopped.
     * @throws NotFoundError when no reader's workflow runs; OperationFailedError when it does not stop within 25 s.
     */
    pause(request: { reason: string; requestedBy: string }): Promise<BridgeStatus> {
      const { reason } = request;
      const call = (reader: ReaderCall) =>
        temporal.workflowService.pauseActivity({ ...reader, reason, requestId: randomUUID() });
      return change('pause', request, call, ({ state }) => state === 'paused');
    },

    /**
     * Lets the reader continue from its offset.
     *
     * @returns the status once the pause is over.
     * @throws as `pause`.
     */
    resume({ requestedBy }: { requestedBy: string }): Promise<BridgeStatus> {
      const call = (reader: ReaderCall) => temporal.workflowService.unpauseActivity(reader);
      return change('resume', { requestedBy }, call, ({ isPaused }) => !isPaused);
    },
  };

  async function change(
    verb: 'pause' | 'resume',
    { requestedBy, reason }: { requestedBy: string; reason?: string },
    call: (reader: ReaderCall) => Promise<unknown>,
    isDone: (status: BridgeStatus) => boolean,
  ): Promise<BridgeStatus> {
    const id = (await pendingActivities())?.find(isReader)?.activityId;
    if (!id) throw new NotFoundError(`${workflowId} is not running; the service starts it when it starts`);
    const reader = { namespace, execution: { workflowId }, identity: requestedBy, id };
    const action = { action: `bridge ${verb}`, requestedBy, detail: reason };
    await byAuthor(resources, action, () => bounded(temporal, () => call(reader)));
    const done = await waitUntil(
      async () => {
        const now = await status();
        return isDone(now) ? now : undefined;
      },
      { limitMs: CONFIRMATION_LIMIT_MS },
    );
    if (done) return done;
    throw new OperationFailedError(
      `Temporal took the ${verb}, and after ${CONFIRMATION_LIMIT_MS / 1_000} s it still does not show; see bridge status`,
    );
  }

  /** @throws what the Temporal client throws when the server does not answer. */
  async function status(): Promise<BridgeStatus> {
    const notRunning: BridgeStatus = {
      ...{ stream: intentsStream, workflowId, state: 'not running', isPaused: false },
      ...linkField(resources, workflowId),
    };
    const pending = await pendingActivities();
    if (pending === undefined) return notRunning;
    const reader = pending.find(isReader);
    // Between two attempts of the workflow itself, for a moment.
    if (!reader) return { ...notRunning, state: 'waiting' };

    const { pauseInfo } = reader;
    const { id: _, type: _type, ...activity } = await pendingActivityOf(temporal, reader);
    return {
      ...{ ...notRunning, ...activity },
      state: STATES[reader.state ?? 0] ?? 'unknown',
      ...withoutNulls({
        pause: pauseInfo && {
          by: pauseInfo.manual?.identity ?? 'a rule',
          reason: pauseInfo.manual?.reason ?? '',
          ...withoutNulls({ since: dateOf(pauseInfo.pauseTime) }),
        },
        worker: reader.lastWorkerIdentity || undefined,
        progress: await decoded<BridgeProgress>(temporal, reader.heartbeatDetails?.payloads?.[0]),
        heartbeatAt: dateOf(reader.lastHeartbeatTime),
      }),
    };
  }

  /** Undefined when the workflow does not run. */
  async function pendingActivities() {
    const described = await describe(temporal, workflowId);
    return described?.status.name === 'RUNNING' ? (described.raw.pendingActivities ?? []) : undefined;
  }
}
