/**
 * The workflow through which operators pause and resume a channel or a producer, and what its callers agree on. One runs
 * for each of them, for good. Pure, so that clients and the workflow sandbox can both import it.
 */
import type { Hold, HoldKey } from '../hold-contract.ts';
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

export function holdKeyOf(name: HeldName): HoldKey {
  const producer = producerOf(name);
  return producer === undefined ? { kind: 'channel', name } : { kind: 'producer', name: producer };
}

/** `channel/push`, `producer/game_lobby`. */
export function channelWorkflowId(name: HeldName): string {
  const key = holdKeyOf(name);
  return `${key.kind}/${key.name}`;
}

/** Query: returns the `ChannelState`, as both updates do. */
export const STATE_QUERY = 'state';

export interface ChannelState {
  channel: HeldName;
  /** `draining`: open for new routes, and those that waited are still being released. */
  status: 'open' | 'paused' | 'draining';
  reason?: string;
  requestedBy?: string;
  /** When the status last changed, epoch ms; 0 when it never did. */
  sinceMs: number;
  /** While draining and after it. */
  drain?: { ratePerSecond: number; released: number };
}

/** State of a channel or a producer, as its row says. */
export const channelStateOf = (channel: HeldName, { isPaused, drainRate, ...hold }: Hold): ChannelState => ({
  channel,
  status: isPaused ? 'paused' : drainRate === undefined ? 'open' : 'draining',
  ...hold,
  ...(drainRate === undefined ? {} : { drain: { ratePerSecond: drainRate, released: 0 } }),
});
