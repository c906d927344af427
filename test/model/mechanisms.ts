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
  /** The offset of the reader is where the rows are that it has written, so both fall back together. */
  keepsOffsetWithRows: boolean;
  /** A reader notices that PostgreSQL has fallen back, although no entry comes. */
  looks: boolean;
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
  keepsOffsetWithRows: true,
  looks: true,
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
