/** Pausing and resuming a channel, through its workflow (workflows/intent/channel-contract.ts). */
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
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';
import { ask, query } from '../temporal.ts';

/** An update waits for attempts that are under way; those take seconds at most. */
const UPDATE_LIMIT_MS = 30_000;

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
        rows.map(async (row) =>
          viewOf(row, await query<ChannelState>(temporal, channelWorkflowId(row.channel), STATE_QUERY)),
        ),
      );
    },

    /**
     * Pauses a channel. Routes wait without spending their budget; it lasts until somebody resumes it, over restarts.
     *
     * @returns its state once no new publication begins any more.
     * @throws OperationFailedError when the channel's workflow does not take it within 30 s.
     */
    pause: (channel: ChannelName, request: PauseRequest = {}) => change(channel, PAUSE_UPDATE, request),

    /**
     * Resumes a channel: waiting routes are released at `ratePerSecond`.
     *
     * @returns its state while it drains, or open.
     * @throws as `pause`.
     */
    resume: (channel: ChannelName, request: ResumeRequest = {}) => change(channel, RESUME_UPDATE, request),
  };

  function change(
    channel: ChannelName,
    update: string,
    request: PauseRequest | ResumeRequest,
  ): Promise<ChannelState> {
    return ask(
      temporal,
      {
        workflowId: channelWorkflowId(channel),
        limitMs: UPDATE_LIMIT_MS,
        ifSilent: 'the change may still be made once one runs, see channels list',
        ifNotRunning: 'the service starts it when it starts',
      },
      (handle) =>
        handle.executeUpdate<ChannelState, [PauseRequest | ResumeRequest]>(update, { args: [request] }),
    );
  }

  function viewOf(row: ChannelRow, state: ChannelState | undefined): ChannelView {
    const { channel, openRoutes } = row;
    const sinceMs = state?.sinceMs ?? row.changedAt?.getTime() ?? 0;
    const reason = state ? state.reason : (row.reason ?? undefined);
    const changedBy = state ? state.requestedBy : (row.changedBy ?? undefined);
    return {
      channel,
      status: state?.status ?? (row.isPaused ? 'paused' : 'open'),
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
