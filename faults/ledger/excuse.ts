/**
 * Which double may be excused. A push that FCM has taken is written down right after, in PostgreSQL and in Redis, and the
 * process tells Temporal; if something takes all of that away, FCM gets it again. So it is excused only when, within the
 * window of that very send, its process ended or was paused, or PostgreSQL and Redis were out of reach together, and the
 * process ended or Temporal was out of reach before PostgreSQL was back.
 */

/** Something that was done to a part of the system, and when, milliseconds since the epoch. */
export interface Spoiled {
  name: string;
  startedAt: number;
  endedAt: number;
  /** A process of the service that ended, or was paused, meanwhile. */
  service?: number;
  /** It was paused: what it was about to do it does afterwards, though others have done it. */
  isPause?: boolean;
  /** A server that was not there, or not to be reached as always. */
  server?: string;
  /** A store has forgotten something: what was done before may be done again. */
  isLoss?: boolean;
  /** A further part of one that is counted already. */
  isGoingOn?: boolean;
}

/** One request to FCM that was taken. */
export interface TakenSend {
  service: number;
  /** When it came; when it was answered, or the connection was gone. */
  at: number;
  answeredAt: number;
}

export interface Window {
  from: number;
  to: number;
}

/** From FCM's answer until it is written down, on a busy machine, ms. */
const RECORDING_MS = 300;

const overlaps = ({ from, to }: Window, { startedAt, endedAt }: Spoiled): boolean =>
  startedAt <= to && endedAt >= from;

/** @returns the window in which a send's record was lost, or undefined when nothing excuses that it is repeated. */
export function excuseOf(
  { service, at, answeredAt }: TakenSend,
  spoiled: readonly Spoiled[],
): Window | undefined {
  const recording = { from: at, to: answeredAt + RECORDING_MS };
  const during = (window: Window) => spoiled.filter((one) => overlaps(window, one));
  if (during(recording).some((one) => one.service === service)) return recording;
  const outages = during(recording).filter(({ server }) => server === 'postgres');
  if (outages.length === 0 || !during(recording).some(({ server }) => server === 'redis')) return undefined;
  // The process itself remembers what no store could record until PostgreSQL is back.
  const window = {
    from: at,
    to: Math.max(recording.to, ...outages.map(({ endedAt }) => endedAt + RECORDING_MS)),
  };
  const isTaken = during(window).some((one) => one.service === service || one.server === 'temporal');
  return isTaken ? window : undefined;
}

/**
 * A process that was paused right before it sent cannot know that another one has sent meanwhile.
 *
 * @returns the window, or undefined when this send did not come right after a pause of its process.
 */
export function lateOf(
  { service, at, answeredAt }: TakenSend,
  spoiled: readonly Spoiled[],
): Window | undefined {
  const pause = spoiled.find(
    (one) =>
      one.isPause && one.service === service && at >= one.startedAt && at <= one.endedAt + RECORDING_MS,
  );
  return pause && { from: Math.min(at, pause.endedAt), to: answeredAt };
}

/** How long the union of windows is, ms. */
export function lengthOf(windows: readonly Window[]): number {
  let [length, until] = [0, Number.NEGATIVE_INFINITY];
  for (const { from, to } of windows.toSorted((a, b) => a.from - b.from)) {
    length += Math.max(0, to - Math.max(from, until));
    until = Math.max(until, to);
  }
  return length;
}
