/**
 * The judge of replays. A dead-lettered route gets a new generation when an operator replays it, and only when the one
 * before was not handed off: so what arrived is of the last generation, and none is older than the opening of that.
 */
import type { Delivery } from './deliveries.ts';

export interface Generation {
  /** `<notification_id>/<route_id>` */
  id: string;
  /** From 1; 0 is the route as it was accepted. */
  generation: number;
  /** When it was opened, ms since the epoch. */
  openedAt: number;
}

interface ReplayCase {
  rows: { entries: ReadonlyMap<string, string | null>; generations: readonly Generation[] };
  replays: readonly string[];
  unknownReplays: number;
  mayRepeat: boolean;
}

/** Of the clocks of one machine, and of what PostgreSQL rounds. */
const CLOCK_MS = 1_000;

/**
 * @param deliveries by id, the oldest first.
 * @returns what is wrong with the generations of routes, and with the entries that rows name.
 */
export function wrongGenerations(
  { rows, replays, unknownReplays, mayRepeat }: ReplayCase,
  deliveries: ReadonlyMap<string, readonly Delivery[]>,
): string[] {
  const wrong: string[] = [];
  const told = Map.groupBy(replays, (id) => id);
  for (const [id, list] of Map.groupBy(rows.generations, (one) => one.id)) {
    const ordered = list.toSorted((a, b) => a.generation - b.generation);
    if (ordered.some(({ generation }, index) => generation !== index + 1))
      wrong.push(`${id} has the generations ${ordered.map(({ generation }) => generation).join()}`);
    if (ordered.some(({ openedAt }, index) => index > 0 && openedAt < ordered[index - 1]!.openedAt))
      wrong.push(`the generations of ${id} were opened out of order`);
    const asked = (told.get(id)?.length ?? 0) + unknownReplays;
    // A store that was put back has forgotten that it had opened one.
    if (ordered.length > asked && !mayRepeat)
      wrong.push(`${id} has ${ordered.length} generations, and ${asked} were asked for`);
    const last = ordered.at(-1)!;
    const early = deliveries.get(id)?.find(({ sighting }) => sighting.seenAt < last.openedAt - CLOCK_MS);
    if (early && !mayRepeat)
      wrong.push(
        `${id} was delivered ${last.openedAt - early.sighting.seenAt} ms before it was opened again`,
      );
  }
  for (const [id, list] of deliveries) {
    const entry = rows.entries.get(id);
    const seen = list.map(({ sighting }) => sighting.entryId);
    // What arrived again after a loss may be of either.
    if (!(mayRepeat ? seen.includes(entry ?? '') : seen.at(-1) === entry))
      wrong.push(`the row of ${id} names the entry ${entry ?? 'of no delivery'}, and ${seen.join()} arrived`);
  }
  return wrong;
}
