/**
 * The workflow through which operators pause and resume a channel or a producer, and what its callers agree on. One runs
 * for each of them, for good. Pure, so that clients and the workflow sandbox can both import it.
 */
import { CHANNELS } from './contract.ts';

export const CHANNEL_WORKFLOW = 'channel';

export const CHANNEL_NAMES = CHANNELS;
export type ChannelName = (typeof CHANNELS)[number];

/** What can be paused: a channel, or all that comes from a producer. */
export type HeldName = ChannelName | `producer:${string}`;

/** The name under which a producer is paused. */
export const heldProducer = (producer: string): HeldName => `producer:${producer}`;

/** The producer that a name is about; undefined for a channel. */
export function producerOf(name: HeldName): string | undefined {
  return name.startsWith('producer:') ? name.slice('producer:'.length) : undefined;
}

/** `channel/push`, `producer/game_lobby`. */
export function channelWorkflowId(name: HeldName): string {
  const producer = producerOf(name);
  return producer === undefined ? `channel/${name}` : `producer/${producer}`;
}

/** Update: argument `PauseRequest`, returns the `ChannelState` once no new publication begins any more. */
export const PAUSE_UPDATE = 'pause';
/** Update: argument `ResumeRequest`, returns the `ChannelState`; the waiting routes drain afterwards. */
export const RESUME_UPDATE = 'resume';
/** Query: returns the `ChannelState`. */
export const STATE_QUERY = 'state';

/** Routes per second that are let go on resume unless the operator says otherwise, and the most that can be asked. */
export const DEFAULT_DRAIN_RATE = 50;
export const MAX_DRAIN_RATE = 10_000;

export interface PauseRequest {
  /** Shown to other operators. */
  reason?: string;
  requestedBy?: string;
}

export interface ResumeRequest {
  /** Waiting routes that are let go per second. Default: DEFAULT_DRAIN_RATE. */
  ratePerSecond?: number;
  requestedBy?: string;
}

export interface ChannelState {
  channel: HeldName;
  /** `draining`: open for new routes, and those that waited are still being let go. */
  status: 'open' | 'paused' | 'draining';
  reason?: string;
  requestedBy?: string;
  /** When the status last changed, epoch ms; 0 when it never did. */
  sinceMs: number;
  /** While draining and after it. */
  drain?: { ratePerSecond: number; released: number };
}
