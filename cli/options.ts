/** Options that several commands have, and how their values are read. */
import { userInfo } from 'node:os';
import { InvalidArgumentError, Option } from 'commander';
import { given } from '../api/given.ts';
import { DURATION_FORMS, durationMs, nearestOf } from '../api/text.ts';
import type { Catalog } from '../api/intent/catalog.ts';
import { CHANNELS } from '../api/intent/catalog.ts';
import { loadOperatorConfig } from '../config/load.ts';
import { DEFAULT_LIMIT, MAX_LIMIT } from '../client/lists.ts';
import { PUBLICATION_FAILURES } from '../workflows/failures.ts';
import { shell } from './invocation.ts';

/** A duration as variables have it, as milliseconds. */
export function parseDuration(text: string): number {
  const ms = durationMs(text);
  if (ms === undefined) throw new InvalidArgumentError(`Give a duration ${DURATION_FORMS}.`);
  return ms;
}

/** @param byDefault as a person writes it. */
export const durationOption = (flags: string, description: string, byDefault?: string): Option => {
  const made = new Option(flags, description).argParser(parseDuration);
  return byDefault === undefined ? made : made.default(parseDuration(byDefault), byDefault);
};

const ISO_TIME = /^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?$/i;

/** Reads a duration from now, or a point in time; one without a zone is meant in UTC. */
const timeParser =
  (sign: 1 | -1, from: string) =>
  (text: string): Date => {
    const ms = durationMs(text);
    if (ms !== undefined) return new Date(Date.now() + sign * ms);
    const [iso, clock, zone] = ISO_TIME.exec(text) ?? [];
    // A date alone is meant in UTC already.
    const time = new Date(iso === undefined ? NaN : clock && !zone ? `${iso}Z` : iso);
    if (!Number.isNaN(time.getTime())) return time;
    throw new InvalidArgumentError(
      `Give a time ${from} now such as 1h, or an ISO time such as 2026-01-31T12:00Z.`,
    );
  };
export const parseTime = timeParser(-1, 'before');
export const parseFuture = timeParser(1, 'from');

export const parseCount =
  (min: number, max: number) =>
  (text: string): number => {
    const value = /^\d{1,9}$/.test(text) ? Number(text) : NaN;
    if (!(value >= min && value <= max))
      throw new InvalidArgumentError(`Give a number from ${min} to ${max}.`);
    return value;
  };

/** One more `name=value` of an option that may be repeated. */
export function addPair(pair: string, before: Record<string, string> = {}): Record<string, string> {
  const at = pair.indexOf('=');
  if (at < 1) throw new InvalidArgumentError('Write name=value.');
  return { ...before, [pair.slice(0, at)]: pair.slice(at + 1) };
}

/** Ids are those of stream entries; of two push jobs from entries of one id the later has a longer one. */
export function parseEntryId(text: string): string {
  if (/^\d{1,20}-\d{1,20}(\/[\da-f]{8})?$/.test(text)) return text;
  throw new InvalidArgumentError('It is the id of a stream entry, such as 1790000000000-0.');
}

export const limitOption = () =>
  new Option('--limit <n>', 'rows at most').argParser(parseCount(1, MAX_LIMIT)).default(DEFAULT_LIMIT);
/** The notification types of the service. @throws ConfigError. */
export const catalogOfShell = (): Catalog => loadOperatorConfig(shell().env).catalog;

/** What a mistyped name may have meant, or what is possible. */
export function adviceFor(given: string, names: readonly string[]): string {
  const nearest = nearestOf(given, names, Math.floor(given.length / 2));
  return nearest === undefined ? `possible are ${names.join(', ')}` : `did you mean ${nearest}?`;
}

/** One of the names that the catalog has; it is read when a value is given. */
const parseName =
  (namesIn: (catalog: Catalog) => Iterable<string>) =>
  (text: string): string => {
    const names = [...namesIn(catalogOfShell())];
    if (names.includes(text)) return text;
    const of = shell().env['NOTIFICATION_CATALOG_FILE']
      ? ''
      : '; without NOTIFICATION_CATALOG_FILE, commands know the built-in catalog alone';
    throw new InvalidArgumentError(adviceFor(text, names) + of);
  };
export const parseType = parseName(({ types }) => types.keys());
export const parseProducer = parseName(({ producers }) => producers);

export const typeOption = () =>
  new Option('--type <type>', 'notification type, see intents sample').argParser(parseType);
export const producerOption = () => new Option('--producer <producer>', 'producer').argParser(parseProducer);
export const channelOption = () => new Option('--channel <channel>', 'channel').choices(CHANNELS);
export const failureOption = () =>
  new Option('--failure <classification>', 'failure that killed the route').choices(PUBLICATION_FAILURES);
export const sinceOption = (of: string) =>
  new Option(
    '--since <time>',
    `${of} at or after: 1h, 7d or an ISO time, in UTC unless it names a zone`,
  ).argParser(parseTime);
export const waitLimitOption = (whole: string, byDefault = '60s') =>
  durationOption('--timeout <duration>', `longest wait for ${whole}`, byDefault);
export const reasonOption = () => new Option('--reason <text>', 'kept and shown to other operators');
export const requestedByOption = () =>
  new Option('--requested-by <name>', 'who asks; kept with the request').default(operatorName());

/** Of a command that does nothing without it. */
export const yesOption = () => new Option('--yes', 'do it: without, it only says what it would do');

/** Of a command that changes something, as its action gets it. */
export interface Requested {
  requestedBy: string;
  /** Where the command has {@link reasonOption}. */
  reason?: string;
}

/** Who asks for a change, and why. */
export const requestOf = ({ requestedBy, reason }: Requested) => ({ requestedBy, ...given({ reason }) });

/** The user of the operating system, who need not have a name in a container. */
export function operatorName(): string {
  try {
    return `cli:${userInfo().username}`;
  } catch {
    return 'cli';
  }
}

/** Bounds of a time, as filters. */
export const spanOptions = (of: string) => ({
  since: sinceOption(of),
  until: new Option('--until <time>', `${of} at or before`).argParser(parseTime),
});

/** Filters of dead letters, by which they are listed and replayed. */
export const deadLetterFilters = () => ({
  ...{ type: typeOption(), channel: channelOption(), failure: failureOption(), producer: producerOption() },
  ...spanOptions('died'),
});
