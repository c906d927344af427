/**
 * Variables of the environment: how one is described, what a kind of work tells about its configuration, and the kinds of values
 * that variables have, each with its check.
 */
import { z } from 'zod';
import { DEFAULT_INPUT_STREAM } from '../api/account-callback/input.ts';
import { SelfExplanatoryError } from '../api/errors.ts';
import { DURATION_FORMS, durationMs } from '../api/text.ts';
import { given } from '../api/given.ts';
import { writtenEmailSchema } from '../api/intent/user-service.ts';
import { OUTCOMES_STREAM } from '../api/intent/outcome.ts';
import { DEFAULT_MOBILE_STREAM } from '../api/mobile-push/job.ts';
import { EVENTS_STREAM } from '../api/stream-ids.ts';
import type { RouterAddress } from '../api/subscription/router-address.ts';
import { ADDRESS_FORMS, AddressError, parseRouterAddress } from '../api/subscription/router-address.ts';
import { isWebhookSecret } from '../api/webhooks.ts';
import type { Wire } from './wire.ts';

declare module 'zod' {
  /** What is known of a variable beside its schema, and its meaning, which is the `description`. */
  interface GlobalMeta {
    /** Must be set in production; elsewhere an embedded server stands in. */
    requiredInProduction?: true;
    /** Must be set in production by processes of the role that it belongs to. */
    requiredByRole?: true;
    /** Why it must not be set in production. */
    refusedInProduction?: string;
    /** Never printed; may come in a file. */
    secret?: true;
    /** It names a file; the value is what is in it. */
    inFile?: true;
  }
}

/** Schemas by the names of variables. A default is a `prefault`, as it would be written in the environment. */
export type Variables = Record<string, z.ZodType>;

/** Values by variable name; those without a default may be undefined. */
export type ValuesOf<V extends Variables> = {
  [Name in keyof V]: z.output<V[Name]> | (V[Name] extends z.ZodPrefault ? never : undefined);
};

/** @returns the default of a variable; undefined without one. */
export const defaultOf = (schema: z.ZodType): string | undefined =>
  schema instanceof z.ZodPrefault ? (schema.def.defaultValue as string) : undefined;

/** What the configuration of one kind of work consists of, and what follows from it. `Values` are those it looks at. */
export interface Kind<Values> {
  variables: Variables;
  /** Values that are fine alone and wrong together; one line each. */
  contradictions?(values: Values): string[];
  /** Of its workers. */
  taskQueue: string;
  /** Its reconciliation: how many looks of processes go to one run of the schedule (60), and what is left undone without it. */
  reconciliation?: { looksPerRun?: number; purpose: string };
  /** The connections that it adds to those of every process. */
  wires?(values: Values): Wire[];
}

/** Where processes see what is to do and trigger the schedule: by itself it runs in case that they see nothing. */
const LOOKS_PER_RUN = 60;

/** Time between two runs of the reconciliation of a kind, ms. A schedule counts in seconds. */
export const reconciliationMs = (
  { reconciliation }: Pick<Kind<never>, 'reconciliation'>,
  { NOTIFICATION_RECONCILIATION_INTERVAL: lookMs }: { NOTIFICATION_RECONCILIATION_INTERVAL: number },
): number => Math.max(1_000, (reconciliation?.looksPerRun ?? LOOKS_PER_RUN) * lookMs);

/** A schedule that must be there, each run of which is one workflow. */
export interface NeededSchedule {
  /** Of the schedule and of the workflows that it starts. */
  id: string;
  workflowType: string;
  taskQueue: string;
  everyMs: number;
  /** What is left undone without it. */
  purpose: string;
}

/** One line for each pair of numbers of which the first is larger than the second. */
export function exceeding<Values>(
  values: Values,
  mustNotExceed: [smaller: keyof Values & string, larger: keyof Values & string, why: string][],
): string[] {
  return mustNotExceed.flatMap(([smaller, larger, why]) => {
    // A value that was refused is undefined.
    const [low, high] = [values[smaller], values[larger]];
    if (typeof low !== 'number' || typeof high !== 'number' || low <= high) return [];
    return [`${smaller} must not exceed ${larger}: ${why}`];
  });
}

/** The environment is wrong; `problems` has one line for every variable at fault. */
export class ConfigError extends SelfExplanatoryError {
  override name = 'ConfigError';
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(`the configuration is wrong:\n${problems.map((problem) => `  ${problem}`).join('\n')}`);
    this.problems = problems;
  }
}

// --- The kinds of values.

/** @param read returns undefined for a text that is refused. @param problem says what the text must be. */
export const readBy = <T>(read: (text: string) => T | undefined, problem: string) =>
  z.string().transform((text, context): T => {
    const value = read(text);
    if (value !== undefined) return value;
    context.addIssue(problem);
    return z.NEVER;
  });

/** A duration as api/text.ts reads it, as milliseconds. */
export const duration = readBy(durationMs, `must be a duration above zero ${DURATION_FORMS}`);

export const integer = (min: number, max: number) =>
  z
    .string()
    .regex(/^\d+$/, 'must be a whole number')
    .transform(Number)
    .pipe(z.number().min(min, `must be at least ${min}`).max(max, `must be at most ${max}`));

export const flag = z.enum(['true', 'false'], 'must be true or false').transform((text) => text === 'true');
export const list = z.string().transform((text) =>
  text
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== ''),
);

/** Streams whose names are fixed. A service that reads what it writes, or mixes kinds of work, never ends. */
const FIXED_STREAMS = [DEFAULT_INPUT_STREAM, DEFAULT_MOBILE_STREAM, OUTCOMES_STREAM, EVENTS_STREAM];
export const streamName = z
  .string()
  .regex(/^[\x21-\x7e]{1,200}$/, 'must be printable ASCII without spaces')
  .refine((name) => !FIXED_STREAMS.includes(name), 'must not be a stream that has another purpose');

export const hostAndPort = readBy((text) => {
  const [, bracketed, plain = '', port] = /^(?:\[([^\]]+)\]|([^:]*)):(\d{1,5})$/.exec(text) ?? [];
  return Number(port) <= 65_535 ? { host: bracketed ?? plain, port: Number(port) } : undefined;
}, 'must be host:port, or :port for every interface');

/** Where a Redis is, and whether it is spoken to through TLS. */
export interface RedisAddress {
  host: string;
  port: number;
  tls?: true;
}

/** The sentinels that know where the master is. It is spoken to through TLS when they are. */
export interface RedisSentinels {
  sentinels: readonly RedisAddress[];
  /** As they call it. */
  master: string;
  /** ACL user of the sentinels; without one, the default user. */
  user?: string;
}

/** Where the master is: at an address, or wherever the sentinels say at the moment. */
export type RedisPlace = RedisAddress | RedisSentinels;

/** `host:port`, or `rediss://host:port` for TLS. The password has its own variable. */
export const redisAddress = readBy((text): RedisAddress | undefined => {
  const [, scheme, address = ''] = /^(rediss:\/\/)?(.*)$/s.exec(text) ?? [];
  const { data } = hostAndPort.safeParse(address);
  return data && (scheme === undefined ? data : { ...data, tls: true });
}, 'must be host:port, or rediss://host:port for TLS');

/** `user@host:port,host:port/master`, with `rediss://` before it for TLS. The password has its own variable. */
export const redisSentinels = readBy((text): RedisSentinels | undefined => {
  const [, scheme = '', user, hosts = '', master] =
    /^(rediss:\/\/)?(?:([^\s:@/]{1,100})@)?([^/@]+)\/([A-Za-z0-9._-]{1,200})$/.exec(text) ?? [];
  const { data: sentinels } = z
    .array(redisAddress)
    .safeParse(hosts.split(',').map((host) => scheme + host.trim()));
  return master !== undefined && sentinels ? { sentinels, master, ...given({ user }) } : undefined;
}, 'must be host:port,host:port/name, with rediss:// before it for TLS');

/** RFC 6750. */
export const bearerToken = z.string().regex(/^[A-Za-z0-9._~+/-]+=*$/, 'must be letters, digits and ._~+/-');

/** The content of a PEM file. */
export const pem = z.string().refine((text) => text.includes('-----BEGIN '), 'must name a PEM file');

export const httpUrl = z.url({ protocol: /^https?$/, error: 'must be an http or https URL' });
export const httpsUrl = z.url({ protocol: /^https$/, error: 'must be an https URL' });
export const postgresDsn = z.url({
  protocol: /^postgres(ql)?$/,
  error: 'must be a postgres:// or postgresql:// URL',
});

/**
 * Trimmed, domains in lower case, without repetition; every entry must be one address. Letters of the mailbox stay as they
 * are: in lower case it may be another one.
 */
export const emailList = list
  .pipe(z.array(writtenEmailSchema.transform((email) => email.replace(/@.*/, lowerCaseOf))))
  .transform((emails) => [...Map.groupBy(emails, lowerCaseOf).values()].map(([first]) => first!));

/** Of ASCII letters: host names compare these alone without regard to case. */
function lowerCaseOf(text: string): string {
  return text.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
}

/** Durations, comma-separated, e.g. `30s,1m,5m`, as milliseconds. */
export const durations = readBy(
  (text) => z.array(duration).safeParse(text.split(',').map((part) => part.trim())).data,
  'must be durations above zero, separated by commas, such as 30s,1m,5m',
);

/** Notification routers, comma-separated, as `parseRouterAddress` has them. */
export const notificationRouters = list.transform((parts, context) =>
  joinedHosts(parts).map((entry, index): RouterAddress => {
    try {
      return parseRouterAddress(entry, 'ntf');
    } catch (error) {
      if (!(error instanceof AddressError)) throw error;
      // The message leaves the entry out: it may hold a password.
      context.addIssue(
        `must be ${ADDRESS_FORMS.ntf}, comma-separated; of number ${index + 1}, ${error.message}`,
      );
      return z.NEVER;
    }
  }),
);

/** A comma also stands between the hosts of a router: what begins no address goes on with the one before. */
function joinedHosts(parts: readonly string[]): string[] {
  const entries: string[] = [];
  for (const part of parts) {
    const isHost = entries.at(-1)?.includes('://') === true && !part.includes('://');
    if (isHost) entries.push(`${entries.pop()},${part}`);
    else entries.push(part);
  }
  return entries;
}

const SEALING_KEY_BYTES = 32;

const sealingKey = readBy((entry) => {
  const [, id, text = ''] = /^([A-Za-z0-9._-]{1,32}):([A-Za-z0-9+/_-]{43}=?)$/.exec(entry) ?? [];
  const key = Buffer.from(text, 'base64');
  return id === undefined || key.length !== SEALING_KEY_BYTES ? undefined : { id, key };
  // Without the entry: it may hold a key.
}, 'must be id:base64 with keys of 32 bytes, comma-separated');

/** Keys that seal, comma-separated, each `id:base64` of 32 bytes; the first one seals, all of them open. */
export const sealingKeys = list.pipe(z.array(sealingKey));

/** Secrets of signatures, comma-separated, as Standard Webhooks has them. */
export const webhookSecrets = list.pipe(
  // Without the entry: it may hold a secret.
  z
    .array(z.string().refine(isWebhookSecret, 'must be whsec_ and base64 of 24 to 64 bytes, comma-separated'))
    .min(1, 'must have one secret at least'),
);
