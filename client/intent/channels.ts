/** Pausing and resuming a channel or a producer, through its workflow (workflows/intent/channel-contract.ts). */
import type { Producer } from '../../api/intent/catalog.ts';
import { PRODUCERS } from '../../api/intent/catalog.ts';
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
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';
import { ask, query } from '../temporal.ts';
import type { WeightRequest } from './weights.ts';
import { USUAL_WEIGHT, setWeight, weightsOf } from './weights.ts';

/** An update waits for attempts that are under way; those take seconds at most. */
const UPDATE_LIMIT_MS = 30_000;

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
     * @returns its state once no new publication begins any more.
     * @throws OperationFailedError when the channel's workflow does not take it within 30 s.
     */
    pause: (channel: ChannelName, request: PauseRequest = {}) =>
      change(resources, channel, PAUSE_UPDATE, request),

    /**
     * Resumes a channel: waiting routes are released at `ratePerSecond`.
     *
     * @returns its state while it drains, or open.
     * @throws as `pause`.
     */
    resume: (channel: ChannelName, request: ResumeRequest = {}) =>
      change(resources, channel, RESUME_UPDATE, request),
  };
}

export function producerOperations(resources: OperatorResources) {
  const { db } = resources;
  const viewOf = viewer(resources);

  return {
    /** The producers of the catalog, with the number of routes that would go out of each. */
    async list(): Promise<ProducerView[]> {
      const [{ rows }, weights] = await Promise.all([
        db.query<HeldRow & { producer: Producer }>(LIST_PRODUCERS, [PRODUCERS]),
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
     * @returns its state once no new publication begins any more.
     * @throws OperationFailedError when the producer's workflow does not take it within 30 s.
     */
    pause: (producer: Producer, request: PauseRequest = {}) =>
      change(resources, heldProducer(producer), PAUSE_UPDATE, request),

    /**
     * Resumes a producer: waiting routes are released at `ratePerSecond`, those that wait longest first.
     *
     * @returns its state while it drains, or open.
     * @throws as `pause`.
     */
    resume: (producer: Producer, request: ResumeRequest = {}) =>
      change(resources, heldProducer(producer), RESUME_UPDATE, request),
  };
}

function change(
  { temporal }: OperatorResources,
  name: HeldName,
  update: string,
  request: PauseRequest | ResumeRequest,
): Promise<ChannelState> {
  return ask(
    temporal,
    {
      workflowId: channelWorkflowId(name),
      limitMs: UPDATE_LIMIT_MS,
      ifSilent: `the change may still be made once one runs, see ${producerOf(name) === undefined ? 'channels' : 'producers'} list`,
      ifNotRunning: 'the service starts it when it starts',
    },
    (handle) =>
      handle.executeUpdate<ChannelState, [PauseRequest | ResumeRequest]>(update, { args: [request] }),
  );
}

/** @returns a function that asks the workflow of a row how it stands. */
function viewer(resources: OperatorResources) {
  return async (row: HeldRow): Promise<HeldView> => {
    const { channel, openRoutes } = row;
    const state = await query<ChannelState>(resources.temporal, channelWorkflowId(channel), STATE_QUERY);
    const sinceMs = state?.sinceMs ?? row.changedAt?.getTime() ?? 0;
    const reason = state ? state.reason : (row.reason ?? undefined);
    const changedBy = state ? state.requestedBy : (row.changedBy ?? undefined);
    return {
      status: state?.status ?? (row.isPaused ? 'paused' : 'open'),
      ...(reason === undefined ? {} : { reason }),
      ...(changedBy === undefined ? {} : { changedBy }),
      ...(sinceMs === 0 ? {} : { since: new Date(sinceMs) }),
      openRoutes,
      ...(state?.drain ? { drain: state.drain } : {}),
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
