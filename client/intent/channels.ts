/**
 * Pausing and resuming a channel or a producer. Publication goes by the row, so a pause is written there first: it holds
 * from then on, whatever Temporal has to do. The workflow (workflows/intent/channel-contract.ts) is told afterwards; it lets
 * waiting routes go after a resume.
 */
import { setHeldSql } from '../../api/intent/held.ts';
import type { Producer } from '../../api/intent/catalog.ts';
import type {
  ChannelName,
  ChannelState,
  HeldName,
  PauseRequest,
  ResumeRequest,
} from '../../workflows/intent/channel-contract.ts';
import {
  CHANNEL_NAMES,
  PAUSE_UPDATE,
  RESUME_UPDATE,
  STATE_QUERY,
  channelWorkflowId,
  heldProducer,
  producerOf,
} from '../../workflows/intent/channel-contract.ts';
import { isRefusal } from '../errors.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';
import { ANSWER_LIMIT_MS, ask, query } from '../temporal.ts';
import type { WeightRequest } from './weights.ts';
import { USUAL_WEIGHT, setWeight, weightsOf } from './weights.ts';

/** A worker with a backlog before it takes an update when its next slot is free, ms. */
const RESUME_LIMIT_MS = 30_000;

export interface ChannelView extends HeldView {
  channel: ChannelName;
}

export interface ProducerView extends HeldView {
  producer: Producer;
}

/** How a channel or a producer stands. */
export interface HeldView {
  status: ChannelState['status'];
  reason?: string;
  /** Who changed it last. */
  changedBy?: string;
  /** When it was changed last; absent when it never was. */
  since?: Date;
  /** Routes that will still be tried. */
  openRoutes: number;
  drain?: { ratePerSecond: number; released: number };
  /** Of a producer: its share of what Temporal hands out, where others have 1. Absent when Temporal does not answer. */
  weight?: number;
  /** Its workflow did not answer: this is what the database says, which is what publication goes by. */
  isWorkflowSilent: boolean;
  link?: string;
}

export function channelOperations(resources: OperatorResources) {
  const { db } = resources;
  const viewOf = viewer(resources);

  return {
    /** Both channels, with the number of routes that would go out on each. */
    async list(): Promise<ChannelView[]> {
      const { rows } = await db.query<HeldRow>(LIST_CHANNELS, [CHANNEL_NAMES]);
      return Promise.all(
        rows.map(async (row) => ({ channel: row.channel as ChannelName, ...(await viewOf(row)) })),
      );
    },

    /**
     * Pauses a channel. Routes wait without spending their budget; it lasts until somebody resumes it, over restarts.
     *
     * @returns its state: no new publication begins any more, also when its workflow has not answered.
     * @throws OperationFailedError when the workflow refuses it; what PostgreSQL throws.
     */
    pause: (channel: ChannelName, request: PauseRequest = {}) => pause(resources, channel, request),

    /**
     * Resumes a channel: waiting routes are released at `ratePerSecond`.
     *
     * @returns its state while it drains, or open.
     * @throws OperationFailedError when the channel's workflow does not take it within 30 s.
     */
    resume: (channel: ChannelName, request: ResumeRequest = {}) => resume(resources, channel, request),
  };
}

export function producerOperations(resources: OperatorResources) {
  const { db, catalog } = resources;
  const viewOf = viewer(resources);

  return {
    /** The producers of the catalog, with the number of routes that would go out of each. */
    async list(): Promise<ProducerView[]> {
      const [{ rows }, weights] = await Promise.all([
        db.query<HeldRow & { producer: Producer }>(LIST_PRODUCERS, [catalog.producers]),
        weightsOf(resources),
      ]);
      return Promise.all(
        rows.map(async (row) => ({
          producer: row.producer,
          ...(weights ? { weight: weights.get(row.producer) ?? USUAL_WEIGHT } : {}),
          ...(await viewOf(row)),
        })),
      );
    },

    /**
     * Sets how large the producer's share is of what waits in Temporal: with 0.2, a fifth of what another one gets. Holds for
     * what waits from then on, where the server has fairness switched on.
     *
     * @param request its `weight` is from 0.001 to 1,000; undefined gives the usual one of 1 back.
     * @throws OperationFailedError when the server has no weights.
     */
    weigh: (producer: Producer, request: WeightRequest) => setWeight(resources, producer, request),

    /**
     * Pauses a producer: its intents are accepted, and nothing of them is published until somebody resumes it, over
     * restarts. Routes wait without spending their budget.
     *
     * @returns as of a channel. @throws as of a channel.
     */
    pause: (producer: Producer, request: PauseRequest = {}) =>
      pause(resources, heldProducer(producer), request),

    /**
     * Resumes a producer: waiting routes are released at `ratePerSecond`, those that wait longest first.
     *
     * @returns its state while it drains, or open.
     * @throws OperationFailedError when the producer's workflow does not take it within 30 s.
     */
    resume: (producer: Producer, request: ResumeRequest = {}) =>
      resume(resources, heldProducer(producer), request),
  };
}

/** As it holds. */
export interface Pause extends ChannelState {
  /** Nobody has told its workflow: the row holds all the same, and a resume finds it so. */
  isWorkflowSilent?: true;
}

async function pause(resources: OperatorResources, name: HeldName, request: PauseRequest): Promise<Pause> {
  const { reason, requestedBy = 'operator' } = request;
  const { rows } = await resources.db.query<{ sinceMs: number }>(HOLD, [
    name,
    true,
    reason ?? null,
    requestedBy,
    null,
  ]);
  const [{ sinceMs }] = rows as [{ sinceMs: number }];
  try {
    return await update(resources, name, PAUSE_UPDATE, request, ANSWER_LIMIT_MS);
  } catch (error) {
    if (isRefusal(error)) throw error;
    const state: ChannelState = { channel: name, status: 'paused', requestedBy, sinceMs };
    return { ...state, ...(reason === undefined ? {} : { reason }), isWorkflowSilent: true };
  }
}

const resume = (
  resources: OperatorResources,
  name: HeldName,
  request: ResumeRequest,
): Promise<ChannelState> => update(resources, name, RESUME_UPDATE, request, RESUME_LIMIT_MS);

function update(
  { temporal }: OperatorResources,
  name: HeldName,
  change: string,
  request: PauseRequest | ResumeRequest,
  limitMs: number,
): Promise<ChannelState> {
  return ask(
    temporal,
    {
      ...{ workflowId: channelWorkflowId(name), limitMs },
      ifSilent: `the change may still be made once one runs, see ${producerOf(name) === undefined ? 'channels' : 'producers'} list`,
      ifNotRunning: 'the service starts it when it starts',
    },
    (handle) =>
      handle.executeUpdate<ChannelState, [PauseRequest | ResumeRequest]>(change, { args: [request] }),
  );
}

/** @returns a function that asks the workflow of a row how it stands. */
function viewer(resources: OperatorResources) {
  return async (row: HeldRow): Promise<HeldView> => {
    const { channel, openRoutes } = row;
    const state = await query<ChannelState>(resources.temporal, channelWorkflowId(channel), STATE_QUERY);
    // Publication goes by the row, of which the workflow may not have heard yet.
    const isToldByRow = state === undefined || (row.isPaused === true && state.status !== 'paused');
    const sinceMs = isToldByRow ? (row.changedAt?.getTime() ?? 0) : state.sinceMs;
    const reason = isToldByRow ? (row.reason ?? undefined) : state.reason;
    const changedBy = isToldByRow ? (row.changedBy ?? undefined) : state.requestedBy;
    return {
      status: isToldByRow ? (row.isPaused ? 'paused' : 'open') : state.status,
      ...(reason === undefined ? {} : { reason }),
      ...(changedBy === undefined ? {} : { changedBy }),
      ...(sinceMs === 0 ? {} : { since: new Date(sinceMs) }),
      openRoutes,
      ...(state?.drain && !isToldByRow ? { drain: state.drain } : {}),
      isWorkflowSilent: state === undefined,
      ...linkField(resources, channelWorkflowId(channel)),
    };
  };
}

interface HeldRow {
  channel: HeldName;
  isPaused: boolean | null;
  reason: string | null;
  changedBy: string | null;
  changedAt: Date | null;
  openRoutes: number;
}

const HOLD = setHeldSql('floor(extract(epoch FROM changed_at) * 1000)::float8 AS "sinceMs"');

const LIST_CHANNELS = `
  SELECT channel, is_paused AS "isPaused", reason, changed_by AS "changedBy", changed_at AS "changedAt",
         (SELECT count(*)::int
            FROM notification.routes
           WHERE routes.channel = name.channel AND next_attempt_at IS NOT NULL) AS "openRoutes"
    FROM unnest($1::text[]) WITH ORDINALITY AS name (channel, position)
    LEFT JOIN notification.channels USING (channel)
   ORDER BY position`;

const LIST_PRODUCERS = `
  SELECT name.producer, 'producer:' || name.producer AS channel, is_paused AS "isPaused", reason, changed_by AS "changedBy",
         changed_at AS "changedAt", coalesce(open.routes, 0) AS "openRoutes"
    FROM unnest($1::text[]) WITH ORDINALITY AS name (producer, position)
    LEFT JOIN notification.channels ON channel = 'producer:' || name.producer
    LEFT JOIN (SELECT producer, count(*)::int AS routes
                 FROM notification.routes
                 JOIN notification.records USING (notification_id)
                WHERE next_attempt_at IS NOT NULL
                GROUP BY producer) AS open ON open.producer = name.producer
   ORDER BY position`;
