/**
 * The judge of intents: what each producer was told against what Gateway and Mail Service got. Of all that has one key
 * exactly one intent is delivered, under one id, to everybody whom it is for, on each channel of its type.
 */
import type { Posting } from './account.ts';
import { acknowledgedIds, toldCounts, unknownAttempts } from './account.ts';
import type { Delivery, Sighting, World } from './deliveries.ts';
import { compare, readDelivery, recipientsOf, takenAt } from './deliveries.ts';
import type { SentIntent } from './intent-entries.ts';
import { MALFORMED_CODE, groupOf } from './intent-entries.ts';
import type { Generation } from './generations.ts';
import { wrongGenerations } from './generations.ts';
import { CHANNELS, TYPES } from './notification-types.ts';
import type { Verdict } from './verdict.ts';
import { noVerdict } from './verdict.ts';
import type { Member } from './windows.ts';
import { judgeWindow } from './windows.ts';

/** What the tables of the reference document say in the end. */
export interface IntentRows {
  /** Failure code by stream entry. */
  refusals: ReadonlyMap<string, string>;
  /** Mark of the payload by notification. */
  marks: ReadonlyMap<string, string>;
  /** Status by `<notification_id>/<route_id>`. */
  routes: ReadonlyMap<string, string>;
  /** By the id of what a route carries, where it was handed off: as which entry. */
  entries: ReadonlyMap<string, string | null>;
  /** Generations that replays have opened. */
  generations: readonly Generation[];
}

export interface IntentCase {
  postings: readonly Posting<SentIntent>[];
  world: World;
  /** Each entry of each outbound stream once, oldest first. */
  sightings: readonly Sighting[];
  rows: IntentRows;
  /** What operators were told that was replayed: `<notification_id>/<route_id>`, once for each time. */
  replays: readonly string[];
  /** Orders to replay with an unknown result. */
  unknownReplays: number;
  /** A store was put back: what it had forgotten may come again, under the same id. */
  mayRepeat: boolean;
}

export function judgeIntents(given: IntentCase): Verdict {
  const { postings, world, sightings, rows, mayRepeat } = given;
  const verdict = noVerdict();
  // What was posted twice with one content is one intent.
  const sent = [...Map.groupBy(postings, ({ content }) => content.mark).values()].map(
    (list): Posting<SentIntent> => ({
      content: list[0]!.content,
      attempts: list.flatMap(({ attempts }) => attempts),
    }),
  );
  const marks = new Map(sent.map((posting) => [posting.content.mark, posting]));
  const deliveries = new Map<string, Delivery[]>();
  /** Ids under which an intent was delivered, by its mark. */
  const deliveredAs = new Map<string, Set<string>>();
  /** Of intents for later. */
  const lateMs: number[] = [];

  for (const sighting of sightings) {
    const delivery = readDelivery(sighting);
    if (typeof delivery === 'string') {
      verdict.altered.push(delivery);
      continue;
    }
    deliveries.set(delivery.id, [...(deliveries.get(delivery.id) ?? []), delivery]);
    judgeOne(delivery);
  }
  for (const [id, again] of deliveries) {
    if (again.length > 1 && mayRepeat) verdict.repeated += again.length - 1;
    else if (again.length > 1) verdict.doubled.push(`${id} has ${again.length} entries`);
  }
  // Of a type with a throttle or windows rows alone may tell that it was accepted.
  for (const [id, mark] of rows.marks)
    if (isThinned(marks.get(mark)?.content.type ?? ''))
      deliveredAs.set(mark, (deliveredAs.get(mark) ?? new Set()).add(id));
  /** Whether each passed, by type and recipient. */
  const throttled = new Map<string, boolean[]>();
  /** What was accepted of a type with windows, by type and recipient. */
  const members = new Map<string, Member[]>();
  const expected = new Map<string, 'published' | 'skipped'>();
  for (const group of Map.groupBy(sent, ({ content }) => groupOf(content)).values()) judgeGroup(group);
  judgeThrottles();
  for (const [name, list] of members) judgeWindow(verdict, name, list, deliveries, mayRepeat);
  judgeRows();
  // A window that was closed, and forgotten, is closed again with what is newer.
  const named = mayRepeat
    ? new Map([...deliveries].filter(([id, [first]]) => rows.entries.has(id) || !collapses(first!)))
    : deliveries;
  verdict.wrong.push(...wrongGenerations(given, named));
  lateMs.sort((a, b) => a - b);

  verdict.figures = {
    intents: postings.length,
    ...toldCounts(postings),
    accepted: new Set([...expected.keys()].map((id) => id.split('/')[0])).size,
    refused: rows.refusals.size,
    deliveries: deliveries.size,
    entries: sightings.length,
    throttled: [...throttled.values()].flat().filter((passed) => !passed).length,
    'in windows': [...members.values()].flat().length,
    'for later': lateMs.length,
    'late by ms, p99': lateMs[Math.floor(lateMs.length * 0.99)] ?? 0,
  };
  return verdict;

  function collapses(delivery: Delivery): boolean {
    return TYPES[postingOf(delivery)?.content.type ?? '']?.collapse !== undefined;
  }

  function judgeOne(delivery: Delivery): void {
    const posting = postingOf(delivery);
    if (!posting) {
      verdict.altered.push(`${delivery.id} is of no intent that was sent`);
      return;
    }
    const { content } = posting;
    if (content.fate !== 'delivered')
      verdict.wrong.push(`${delivery.id} is of an intent that had to be refused`);
    const known = acknowledgedIds(posting);
    if (!known.includes(delivery.notificationId) && unknownAttempts(posting) === 0)
      verdict.wrong.push(`${delivery.id} is not of ${known.join()}, under which its intent was acknowledged`);
    deliveredAs.set(content.mark, (deliveredAs.get(content.mark) ?? new Set()).add(delivery.notificationId));
    if (content.deliverAtMs !== undefined) {
      const lateBy = takenAt(delivery) - content.deliverAtMs;
      lateMs.push(lateBy);
      if (lateBy < 0) verdict.wrong.push(`${delivery.id} was delivered ${-lateBy} ms too early`);
    }
    const { misdirected, altered } = compare(delivery, content, {
      world,
      postedAt: posting.attempts[0]!.beganAt,
    });
    verdict.misdirected.push(...misdirected);
    verdict.altered.push(...altered);
  }

  /** Finds the posting by the content of the delivery; by its id when the content names no known intent. */
  function postingOf({ told, notificationId }: Delivery): Posting<SentIntent> | undefined {
    for (const value of Object.values(told)) {
      const [mark = ''] = /mark-\d+\b/.exec(typeof value === 'string' ? value : '') ?? [];
      const posting = marks.get(mark);
      if (posting) return posting;
    }
    return sent.find((posting) => acknowledgedIds(posting).includes(notificationId));
  }

  /** Everything of one key. */
  function judgeGroup(group: readonly Posting<SentIntent>[]): void {
    const good = group.filter(({ content }) => content.fate === 'delivered');
    const arrived = good.filter(({ content }) => deliveredAs.has(content.mark));
    judgeOrder(good, arrived);
    if (arrived.length > 1)
      verdict.doubled.push(`${groupOf(good[0]!.content)} was delivered with ${arrived.length} contents`);
    for (const { content } of arrived) {
      const ids = [...deliveredAs.get(content.mark)!];
      if (ids.length > 1) verdict.doubled.push(`${content.mark} was delivered as ${ids.join()}`);
      for (const id of ids) expectDeliveries(content, id);
    }
    if (good.length > 0 && arrived.length === 0) {
      const ids = good.flatMap(acknowledgedIds);
      // What has recipients on no channel has rows only.
      if (ids.length > 0) verdict.lost.push(`${groupOf(good[0]!.content)}: nothing of ${ids.join()} arrived`);
    }
    for (const posting of group) judgeRefusal(posting, good, arrived[0]);
  }

  /** Of two intents with one key the earlier wins; once a store has fallen back, the order is unknown. */
  function judgeOrder(good: readonly Posting<SentIntent>[], [winner]: readonly Posting<SentIntent>[]): void {
    if (!winner || mayRepeat || good.some((posting) => unknownAttempts(posting) > 0)) return;
    const first = good.toSorted((a, b) => orderOf(a) - orderOf(b))[0]!;
    if (first !== winner)
      verdict.wrong.push(`${winner.content.mark} won over ${first.content.mark}, which was there before`);
  }

  function expectDeliveries(sent: SentIntent, notificationId: string): void {
    const { throttle, collapse, channels: all } = TYPES[sent.type]!;
    const channels = all[sent.audience] ?? [];
    for (const ref of recipientsOf(sent, world)) {
      if (collapse !== undefined) {
        const name = `${sent.type} to ${ref}`;
        const postedAt = marks.get(sent.mark)!.attempts[0]!.beganAt;
        members.set(name, [...(members.get(name) ?? []), { id: notificationId, ref, sent, postedAt }]);
      }
      const idOf = (channel: string) => `${notificationId}/${channel}:${ref}`;
      // All channels pass, or none.
      const passed = throttle === undefined || channels.some((channel) => deliveries.has(idOf(channel)));
      if (throttle !== undefined) {
        const name = `${sent.type} to ${ref}`;
        throttled.set(name, [...(throttled.get(name) ?? []), passed]);
      }
      for (const channel of CHANNELS) {
        const id = idOf(channel);
        const isWanted = channels.includes(channel) && passed;
        // Any route of a window carries its delivery.
        const isCarried = collapse !== undefined && rows.routes.get(id) === 'skipped';
        expected.set(id, isWanted && !isCarried ? 'published' : 'skipped');
        if (isWanted && collapse === undefined && !deliveries.has(id))
          verdict.lost.push(`${id} did not arrive`);
        if (!isWanted && deliveries.has(id)) verdict.wrong.push(`${id}: its type has no ${channel}`);
      }
    }
  }

  /** As many pass as may, and not one more; of what a store has forgotten more may have passed. */
  function judgeThrottles(): void {
    for (const [name, all] of throttled) {
      const passed = all.filter(Boolean).length;
      const most = TYPES[name.split(' ')[0]!]!.throttle!;
      if (passed > most && !mayRepeat)
        verdict.doubled.push(`${name}: ${passed} passed a throttle of ${most}`);
      if (passed < Math.min(most, all.length))
        verdict.lost.push(`${name}: ${passed} of ${all.length} passed a throttle of ${most}`);
    }
  }

  function judgeRefusal(
    posting: Posting<SentIntent>,
    good: readonly Posting<SentIntent>[],
    arrived: Posting<SentIntent> | undefined,
  ): void {
    const { content } = posting;
    const isConflict = arrived !== undefined && good.length > 1 && arrived !== posting;
    const due =
      content.fate === 'delivered'
        ? isConflict
          ? 'idempotency_conflict'
          : undefined
        : content.fate === 'malformed'
          ? MALFORMED_CODE
          : content.fate;
    // Put in again after a loss: the one that was lost has left nothing.
    const recorded = acknowledgedIds(posting).map((id) => rows.refusals.get(id));
    const isRight =
      due === undefined ? recorded.every((code) => code === undefined) : recorded.at(-1) === due;
    if (recorded.length > 0 && !isRight)
      verdict[due === undefined ? 'wrong' : 'lost'].push(
        `${content.mark} (${acknowledgedIds(posting).join()}) is recorded as ${recorded.join()}, not as ${due ?? 'accepted'}`,
      );
  }

  function judgeRows(): void {
    for (const [id, status] of expected) {
      const is = rows.routes.get(id);
      if (is !== status) verdict.wrong.push(`the row of ${id} is ${is ?? 'missing'}, not ${status}`);
    }
    for (const id of rows.routes.keys())
      if (!expected.has(id)) verdict.wrong.push(`the row ${id} was not expected`);
  }
}

/** Of a type of which some are skipped. */
const isThinned = (type: string): boolean =>
  TYPES[type]?.throttle !== undefined || TYPES[type]?.collapse !== undefined;

/** When the first entry of an intent came into the stream: the part of its id that is a time, and the one that is not. */
function orderOf(posting: Posting<SentIntent>): number {
  const [ms = '0', number = '0'] = (acknowledgedIds(posting)[0] ?? '').split('-');
  return Number(ms) + Number(number) / 1_000;
}
