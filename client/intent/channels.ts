/** Pausing and resuming a channel, through its workflow (workflows/intent/channel-contract.ts). */
import { WorkflowNotFoundError, WorkflowUpdateRPCTimeoutOrCancelledError } from '@temporalio/client';
import type { OperatorResources } from '../operator.ts';
import type {
  ChannelName,
  ChannelState,
  PauseRequest,
  ResumeRequest,
} from '../../workflows/intent/channel-contract.ts';
import {
  CHANNEL_NAMES,
  PAUSE_UPDATE,
  RESUME_UPDATE,
  STATE_QUERY,
  channelWorkflowId,
} from '../../workflows/intent/channel-contract.ts';
import { OperationFailedError } from '../errors.ts';
import { bounded } from '../live.ts';
import { makeUpdate } from '../updates.ts';
import { linkField } from '../web-ui-links.ts';

/** An update waits for attempts that are under way; those take seconds at most. */
const UPDATE_LIMIT_MS = 30_000;
const QUERY_LIMIT_MS = 3_000;

export interface ChannelView {
  channel: ChannelName;
  status: ChannelState['status'];
  reason?: string;
  /** Who changed it last. */
  changedBy?: string;
  /** When it was changed last; absent when it never was. */
  since?: Date;
  /** Routes that will still be tried. */
  openRoutes: number;
  drain?: { ratePerSecond: number; released: number };
  /** Its workflow did not answer: this is what the database says, which is what publication goes by. */
  isWorkflowSilent: boolean;
  link?: string;
}

export function channelOperations(resources: OperatorResources) {
  const { temporal, db } = resources;

  return {
    /** Both channels, with the number of routes that would go out on each. */
    async list(): Promise<ChannelView[]> {
      const { rows } = await db.query<ChannelRow>(LIST_CHANNELS, [CHANNEL_NAMES]);
      return Promise.all(
        rows.map(async (row) => viewOf(row, await stateOf(row.channel).catch(() => undefined))),
      );
    },

    /**
     * Pauses a channel. Routes wait without spending their budget; it lasts until somebody resumes it, over restarts.
     *
     * @returns its state once no new publication begins any more.
     * @throws OperationFailedError when the channel's workflow does not take it within 30 s.
     */
    pause: (channel: ChannelName, request: PauseRequest = {}) => update(channel, PAUSE_UPDATE, request),

    /** Resumes a channel: waiting routes are let go at `ratePerSecond`. Returns and throws as `pause`. */
    resume: (channel: ChannelName, request: ResumeRequest = {}) => update(channel, RESUME_UPDATE, request),
  };

  async function update(
    channel: ChannelName,
    name: string,
    request: PauseRequest | ResumeRequest,
  ): Promise<ChannelState> {
    try {
      return await makeUpdate(
        temporal,
        () =>
          temporal.workflow
            .getHandle(channelWorkflowId(channel))
            .executeUpdate<ChannelState, [PauseRequest | ResumeRequest]>(name, { args: [request] }),
        UPDATE_LIMIT_MS,
      );
    } catch (error) {
      if (error instanceof WorkflowUpdateRPCTimeoutOrCancelledError) {
        throw new OperationFailedError(
          `no worker answered for ${channelWorkflowId(channel)} within ${UPDATE_LIMIT_MS / 1_000} s; the change may still be made once one runs, see channels list`,
          { cause: error },
        );
      }
      if (!(error instanceof WorkflowNotFoundError)) throw error;
      throw new OperationFailedError(
        `${channelWorkflowId(channel)} is not running; the service starts it when it starts`,
        { cause: error },
      );
    }
  }

  function stateOf(channel: ChannelName): Promise<ChannelState> {
    const handle = temporal.workflow.getHandle(channelWorkflowId(channel));
    return bounded(temporal, () => handle.query<ChannelState>(STATE_QUERY), QUERY_LIMIT_MS);
  }

  function viewOf(row: ChannelRow, state: ChannelState | undefined): ChannelView {
    const { channel, open_routes: openRoutes } = row;
    const sinceMs = state?.sinceMs ?? row.changed_at?.getTime() ?? 0;
    const reason = state ? state.reason : (row.reason ?? undefined);
    const changedBy = state ? state.requestedBy : (row.changed_by ?? undefined);
    return {
      channel,
      status: state?.status ?? (row.is_paused ? 'paused' : 'open'),
      ...(reason === undefined ? {} : { reason }),
      ...(changedBy === undefined ? {} : { changedBy }),
      ...(sinceMs === 0 ? {} : { since: new Date(sinceMs) }),
      openRoutes,
      ...(state?.drain ? { drain: state.drain } : {}),
      isWorkflowSilent: state === undefined,
      ...linkField(resources, channelWorkflowId(channel)),
    };
  }
}

interface ChannelRow {
  channel: ChannelName;
  is_paused: boolean | null;
  reason: string | null;
  changed_by: string | null;
  changed_at: Date | null;
  open_routes: number;
}

const LIST_CHANNELS = `
  SELECT channel, is_paused, reason, changed_by, changed_at,
         (SELECT count(*)::int
            FROM notification.routes
           WHERE routes.channel = name.channel AND next_attempt_at IS NOT NULL) AS open_routes
    FROM unnest($1::text[]) WITH ORDINALITY AS name (channel, position)
    LEFT JOIN notification.channels USING (channel)
   ORDER BY position`;
