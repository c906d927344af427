/**
 * The judge of windows: of one type to one recipient, each intent is delivered, or a newer one is in its place, and none
 * before the window has ended that the first of them opened. A digest has all of them, each once.
 */
import { sameValue } from './comparison.ts';
import type { Delivery } from './deliveries.ts';
import { takenAt } from './deliveries.ts';
import type { SentIntent } from './intent-entries.ts';
import { TYPES, WINDOW_MS } from './notification-types.ts';
import type { Verdict } from './verdict.ts';

/** An intent that was accepted. */
export interface Member {
  /** Of its notification. */
  id: string;
  /** Of the recipient. */
  ref: string;
  sent: SentIntent;
  /** Ms since the epoch. */
  postedAt: number;
}

/** @param name for people. @param unordered the whole of one type and recipient. */
export function judgeWindow(
  verdict: Verdict,
  name: string,
  unordered: readonly Member[],
  deliveries: ReadonlyMap<string, readonly Delivery[]>,
  mayRepeat: boolean,
): void {
  const members = unordered.toSorted((a, b) => orderOf(a) - orderOf(b));
  const { collapse, channels } = TYPES[members[0]!.sent.type]!;
  for (const channel of channels.user ?? []) {
    const listOf = ({ id, ref }: Member) => deliveries.get(`${id}/${channel}:${ref}`) ?? [];
    let window: Member[] = [];
    for (const member of members) {
      window.push(member);
      const [delivery] = listOf(member);
      if (!delivery) continue;
      const earlyBy = window[0]!.postedAt + WINDOW_MS - takenAt(delivery);
      // A store that was put back may have closed a window again, with fewer or more of them.
      if (earlyBy > 0 && !mayRepeat)
        verdict.wrong.push(`${delivery.id} was delivered ${earlyBy} ms before the end of its window`);
      if (collapse === 'digest') judgeDigest(delivery, window);
      window = [];
    }
    if (window.length > 0)
      verdict.lost.push(`${name}: no ${channel} of ${window.map(({ id }) => id).join()}, nor of a newer one`);
    if (collapse !== 'digest' || channel !== 'email') continue;
    const items = members.flatMap(listOf).flatMap(itemsOf);
    const missing = members.filter(({ sent }) => !items.some((item) => sameValue(item, sent.payload)));
    verdict.lost.push(...missing.map(({ id }) => `${name}: no digest has ${id}`));
  }

  function judgeDigest(delivery: Delivery, window: readonly Member[]): void {
    if (mayRepeat) return;
    const isWhole =
      delivery.sighting.channel === 'push'
        ? delivery.values.get('item_count') === String(window.length)
        : sameValue(
            itemsOf(delivery),
            window.map(({ sent }) => sent.payload),
          );
    if (!isWhole)
      verdict.altered.push(`${delivery.id}: the digest is not of ${window.map(({ id }) => id).join()}`);
  }
}

const itemsOf = ({ told }: Delivery): unknown[] => (Array.isArray(told['items']) ? told['items'] : []);

/** The place in the stream. */
function orderOf({ id }: Member): number {
  const [ms, number] = id.split('-');
  return Number(ms) + Number(number) / 1_000;
}
