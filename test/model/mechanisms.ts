/** What a move is, and the mechanisms of the product that decide what moves there are. */
import type { RouteRow, State } from './state.ts';

/** Changes the state that it is given. @returns whether it can be made; if not, nothing is changed. */
export type Step = (state: State) => boolean;

export interface Move {
  name: string;
  make: Step;
}

/** What protects against stores that forget. */
export interface Mechanisms {
  /** The row has the entry as which it was handed off, and what an outbound stream lost is handed off again. */
  repair: boolean;
  /** Open routes and waiting intents without a workflow are taken up. */
  reconciler: boolean;
  /** PostgreSQL remembers how far the stream was read; a store that fell back is noticed, and entries are read again. */
  position: boolean;
  /** Entries are read again from some time before the last look in health, not from that look on. */
  margin: boolean;
  /** A notification that Temporal was found not to know is not asked for again. */
  forgetsLost: boolean;
  /**
   * What a reader started and no look has seen is looked for by the next one. Here that one begins where the last look was;
   * the product saves what was started last together with the offset.
   */
  startsFromRow: boolean;
  /** The cancellation of an intent that has no record yet leaves a row that decides it. */
  recordsCancellation: boolean;
  /** A cancellation is confirmed when the route is found closed in Redis after its row was settled. */
  closesTwice: boolean;
  /** A cancellation is confirmed when attempts from before are void, for which there may be no row any more. */
  voidsAttempts: boolean;
  /** An attempt from before Redis fell back hands off nothing. */
  knowsHistory: boolean;
}

export const ALL: Mechanisms = {
  repair: true,
  reconciler: true,
  position: true,
  margin: true,
  forgetsLost: true,
  startsFromRow: true,
  closesTwice: true,
  voidsAttempts: true,
  knowsHistory: true,
  recordsCancellation: true,
};

export const tick = ({ world }: State): number => (world.clock += 1);

/** Puts an entry into the outbound stream. @returns its id. */
export function appendOutbound(state: State, { notification }: RouteRow): number {
  const { redis, world } = state;
  const id = tick(state);
  redis.outbound.push({ id, notification });
  redis.lastOutbound = id;
  redis.added += 1;
  if (world.cancelled === notification && !world.seen.includes(notification))
    world.isDeliveredAfterCancel = true;
  return id;
}
