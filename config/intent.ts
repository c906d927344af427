/** Configuration of intents. */
import { z } from 'zod';
import type { Catalog } from '../api/intent/catalog.ts';
import { CatalogError, adminTypesOf } from '../api/intent/catalog.ts';
import { parseCatalog } from '../api/intent/galaxy.ts';
import type { OutcomeKind } from '../api/intent/outcome.ts';
import { OTHER_OUTCOMES, OUTCOMES_STREAM, OUTCOME_KINDS, TERMINAL_OUTCOMES } from '../api/intent/outcome.ts';
import { DISPATCH_MODES, INTENT_TASK_QUEUE } from '../workflows/intent/contract.ts';
import type { ServiceValues } from './service.ts';
import { callerWires, placeAt } from './caller.ts';
import {
  bearerToken,
  duration,
  emailList,
  exceeding,
  httpUrl,
  integer,
  postgresDsn,
  readBy,
  streamName,
} from './variables.ts';
import type { Kind, ValuesOf } from './variables.ts';

/** What the names begin with by which calls to the User Service are proven. */
export const USER_SERVICE = 'NOTIFICATION_USER_SERVICE';

/** `none`, `ends`, `all`, or kinds beside the ends. */
const outcomeKinds = readBy(
  (text): readonly OutcomeKind[] | undefined => {
    if (text === 'none') return [];
    if (text === 'ends') return TERMINAL_OUTCOMES;
    if (text === 'all') return OUTCOME_KINDS;
    const kinds = text.split(',').map((kind) => kind.trim());
    const { data: named } = z.array(z.enum(OTHER_OUTCOMES)).safeParse(kinds);
    return named && [...TERMINAL_OUTCOMES, ...named];
  },
  `must be none, ends, all, or some of ${OTHER_OUTCOMES.join(', ')}`,
);

/** What is in the file of a catalog. */
const catalogText = z.string().transform((text, context): Catalog => {
  try {
    return parseCatalog(text);
  } catch (error) {
    if (!(error instanceof CatalogError)) throw error;
    for (const problem of error.problems) context.addIssue(problem);
    return z.NEVER;
  }
});

export const INTENT_VARIABLES = {
  NOTIFICATION_CATALOG_FILE: catalogText
    .describe(
      'YAML or JSON file of the notification types. Empty: the 18 types of Galaxy, catalog/galaxy.yaml.',
    )
    .meta({ inFile: true }),
  NOTIFICATION_INTENTS_STREAM: streamName
    .prefault('notification:intents')
    .describe('Stream that producers append intents to.'),
  NOTIFICATION_INTENTS_READ_BLOCK_TIMEOUT: duration
    .prefault('2s')
    .describe('Longest blocking read of that stream.'),
  NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM: streamName
    .prefault('gateway:client-events')
    .describe('Stream of push events for Gateway.'),
  NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM_MAX_LEN: integer(1, 1_000_000_000)
    .prefault('1024')
    .describe('Approximate length to which that stream is trimmed.'),
  NOTIFICATION_MAIL_DELIVERY_COMMANDS_STREAM: streamName
    .prefault('mail:delivery_commands')
    .describe('Stream of e-mail commands for Mail Service.'),

  NOTIFICATION_OUTBOX_POSTGRES_DSN: postgresDsn
    .describe(
      "A producer's database with an outbox, for the commands galaxy-notify outbox; the service does not use it.",
    )
    .meta({ secret: true }),

  NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS: integer(1, 1_000)
    .prefault('3')
    .describe('Attempts of a push route in total.'),
  NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: integer(1, 1_000)
    .prefault('7')
    .describe(
      'Attempts of an e-mail route in total, and of looking up a recipient about whom the User Service gives no usable answer.',
    ),
  NOTIFICATION_ROUTE_BACKOFF_MIN: duration
    .prefault('1s')
    .describe('Delay after the first failed attempt; it doubles from there.'),
  NOTIFICATION_ROUTE_BACKOFF_MAX: duration.prefault('5m').describe('Longest delay between two attempts.'),
  NOTIFICATION_ROUTE_LEASE_TTL: duration
    .prefault('5s')
    .describe("How long a route's lease outlives a worker that died."),
  NOTIFICATION_ROUTE_DISPATCH: z
    .enum(DISPATCH_MODES, `must be one of ${DISPATCH_MODES.join(', ')}`)
    .prefault('child')
    .describe(
      'What is a workflow. child: every notification and route; on_failure, and above 250 routes: of routes those whose first attempt failed; direct: only what is in trouble.',
    ),
  NOTIFICATION_OUTCOMES: outcomeKinds
    .prefault('none')
    .describe(
      `What producers are told about their intents: none; ends, one event an intent; all; or which kinds beside the ends, comma-separated: ${OTHER_OUTCOMES.join(', ')}.`,
    ),
  NOTIFICATION_OUTCOMES_STREAM_MAX_LEN: integer(1, 1_000_000_000)
    .prefault('100000')
    .describe(`Approximate length to which the stream of these events, ${OUTCOMES_STREAM}, is trimmed.`),
  NOTIFICATION_IDEMPOTENCY_TTL: duration
    .prefault('168h')
    .describe('How long at least an idempotency key stays reserved.'),

  NOTIFICATION_USER_SERVICE_BASE_URL: httpUrl
    .describe('Base URL of the User Service.')
    .meta({ requiredInProduction: true }),
  NOTIFICATION_USER_SERVICE_TOKEN: bearerToken
    .describe('Bearer token for calls to the User Service.')
    .meta({ secret: true }),
  NOTIFICATION_USER_SERVICE_TIMEOUT: duration.prefault('1s').describe('Time-out of one lookup.'),
  NOTIFICATION_USER_SERVICE_MAX_LOOKUPS: integer(1, 10_000)
    .prefault('64')
    .describe(
      'Lookups that a process makes concurrently; intents to more than 32 users make at most half of them.',
    ),
};

/** `geo.review_recommended` -> `NOTIFICATION_ADMIN_EMAILS_GEO_REVIEW_RECOMMENDED` */
export const adminEmailsVariable = (type: string): string =>
  `NOTIFICATION_ADMIN_EMAILS_${type.replace(/\./g, '_').toUpperCase()}`;

/** One list of administrators for each notification type that reaches them. */
export const adminEmailVariablesOf = (catalog: Catalog) =>
  Object.fromEntries(
    adminTypesOf(catalog).map(({ type }) => [
      adminEmailsVariable(type),
      emailList.prefault('').describe(`Administrators who get ${type}, comma-separated.`),
    ]),
  );

export const INTENT: Kind<ServiceValues & ValuesOf<typeof INTENT_VARIABLES>> = {
  variables: INTENT_VARIABLES,
  contradictions: (values) =>
    exceeding(values, [
      [
        'NOTIFICATION_ROUTE_BACKOFF_MIN',
        'NOTIFICATION_ROUTE_BACKOFF_MAX',
        'it is the lower end of the ladder',
      ],
      [
        'NOTIFICATION_REDIS_OPERATION_TIMEOUT',
        'NOTIFICATION_ROUTE_LEASE_TTL',
        'a lease must outlive the publication that it covers',
      ],
    ]),
  taskQueue: INTENT_TASK_QUEUE,
  wires: (values) =>
    callerWires(values, {
      ...{ prefix: USER_SERVICE, connection: 'user-service', name: 'User Service', isSigned: false },
      address: 'NOTIFICATION_USER_SERVICE_BASE_URL',
      places: placeAt('User Service', values.NOTIFICATION_USER_SERVICE_BASE_URL),
    }),
  reconciliation: { purpose: 'routes whose workflow is lost are not taken up' },
};
