/**
 * `npm run demo`: the whole stack on free ports, one intent of each type, a push to phones, the symbols pushed to every
 * target, account values told to a portfolio, a subscription, and a table of what was delivered where. Ends with exit
 * code 0 only if all of it arrived, exactly once.
 */
import { parseArgs } from 'node:util';
import { Redis } from 'ioredis';
import pg from 'pg';
import type { AudienceKind, Catalog, NotificationType } from '../../api/intent/catalog.ts';
import type { MailCommandPayload } from '../../api/intent/outbound-entries.ts';
import { readPushPayload } from '../push-payload.ts';
import { DEFAULT_MOBILE_STREAM } from '../../api/mobile-push/job.ts';
import { onInterrupt } from '../../api/interrupts.ts';
import { report, runProgram } from '../program.ts';
import { connectOperator } from '../../client/connect.ts';
import { sampleIntentOf } from '../../client/testing.ts';
import type { NotificationIntent } from '../../client/notificationintent.ts';
import { publishIntent } from '../../client/notificationintent.ts';
import { workflowLink } from '../../client/resources.ts';
import { adminEmailVariablesOf } from '../../config/intent.ts';
import { environmentWith, loadConfig } from '../../config/load.ts';
import { operatorServers, redisServer } from '../../config/operator.ts';
import { provideEndpoints } from '../../workers/embedded.ts';
import { createLogger, logDestination } from '../../workers/logger.ts';
import { startService } from '../../workers/service.ts';
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { reportStep } from '../progress.mjs';
import { tableOf } from '../table.ts';
import { tellAccountValues, verdictOnCallbacks } from './account-callback.ts';
import type { DeviceResult } from './mobile-push.ts';
import { demonstrateMobilePush, tableOfDevices } from './mobile-push.ts';
import { subscribe, verdictOnSubscriptions } from './subscription.ts';
import { pushSymbols, verdictOnSymbols } from './symbol-config.ts';

const HELP = `Usage: npm run demo [-- options]

Starts everything on free ports, publishes one intent of each notification type and a push to the phones of a sample
user, pushes the symbols to all stand-in targets, tells a stand-in portfolio the hourly and daily extremes of an account,
subscribes a connection to notifications, and shows what was delivered where.

  --keep          leave everything running afterwards, until Ctrl-C, to look around in the Web UI
  --catalog FILE  notification types of your own, see docs/start/add-your-types.md
  --json          print the result as JSON
  --help          this text
`;

const NEXT = `
What next?
  npm run demo -- --keep                     the same, and it keeps running, to look around in the Web UI
  npm start                                  the service and all it needs, until Ctrl-C
  bin/gn --help                              what operators do with it, while it runs`;
const NEXT_WHILE_IT_RUNS = `
What next, in another terminal?
  export NOTIFICATION_DATA_DIR=.data/demo    lets commands find these servers, not those of npm start
  bin/gn doctor                              is everything all right?
  bin/gn why user-1                          what became of everything for that user`;

/** How long all deliveries may take together, ms. Far more than they need; a demo must end. */
const DELIVERY_LIMIT_MS = 60_000;

interface RouteRow {
  route_id: string;
  status: string;
  last_error_message: string | null;
}

/** One route in the result. `deliveredAs` is absent for a skipped route, and for one that did not arrive. */
interface RouteResult {
  route: string;
  status: string;
  deliveredAs?: { stream: string; entryId: string; content: string };
  /** From the XADD of the intent to the XADD of the outbound entry, by the clock of Redis. */
  afterMs?: number;
  problem?: string;
}

interface IntentResult {
  type: NotificationType;
  audience: AudienceKind;
  notificationId: string;
  routes: RouteResult[];
}

async function main(): Promise<boolean> {
  const { values: options } = parseArgs({
    options: {
      keep: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      catalog: { type: 'string' },
      help: { type: 'boolean', default: false },
    },
  });
  if (options.help) {
    process.stdout.write(HELP);
    return true;
  }

  // Ending through `exit` takes the embedded servers along, which a signal by itself would leave behind.
  const stopEndingNow = onInterrupt(() => process.exit(130));
  const config = loadConfig(environmentWith(demoDefaults(options.catalog)));
  const destination = await logDestination(process.stderr, config.production);
  const { endpoints, stack, uiUrl } = await step('servers are up', () => provideEndpoints(config, report));
  const redis = new Redis(redisServer(config, endpoints.redis));
  const db = new pg.Client({ connectionString: endpoints.postgresDsn });
  const { operator, resources, close } = connectOperator(operatorServers(config, endpoints));
  try {
    const log = createLogger(config.values.NOTIFICATION_LOG_LEVEL, destination);
    const service = await step('galaxy-notify is up', () => startService({ config, endpoints, log }));
    await db.connect();
    try {
      const results = await step('one intent of each notification type', async () => {
        const published = await publishSamples(
          config.catalog,
          redis,
          config.values.NOTIFICATION_INTENTS_STREAM,
        );
        return awaitDeliveries(redis, db, config, published);
      });
      // Never to an FCM that is configured: those would be the phones of people.
      const fcm = stack?.fcmStandIn;
      const jobs = { stream: DEFAULT_MOBILE_STREAM, limitMs: DELIVERY_LIMIT_MS };
      const devices = fcm
        ? await step('a push to phones', () => demonstrateMobilePush(redis, db, fcm, jobs))
        : [];
      // A demo never pushes to configured targets: they are real.
      const symbols = stack?.symbolTargets && (await step('symbols', () => pushSymbols(operator)));
      const portfolio = stack?.portfolio;
      const callbacks =
        portfolio && (await step('account values', () => tellAccountValues(resources, portfolio, redis)));
      const routers = stack?.routers;
      const subscription = routers && (await step('a subscription', () => subscribe(operator, routers)));
      const all = [...results.flatMap(({ routes }) => routes), ...devices];
      const isDelivered = all.every(({ problem }) => problem === undefined);
      const isComplete =
        [symbols, callbacks, subscription].every((part) => part?.isComplete ?? true) && isDelivered;
      process.stdout.write(
        options.json
          ? `${JSON.stringify({ isComplete, uiUrl, results, devices, symbols, callbacks, subscription }, null, 2)}\n`
          : `${tableOfResults(results)}${devices.length > 0 ? tableOfDevices(devices) : ''}`,
      );
      report(verdict(results, devices, isDelivered, uiUrl, config.values.TEMPORAL_NAMESPACE));
      if (symbols) report(verdictOnSymbols(symbols));
      if (callbacks) report(verdictOnCallbacks(callbacks));
      if (subscription) report(verdictOnSubscriptions(subscription));
      report(options.keep ? NEXT_WHILE_IT_RUNS : NEXT);
      if (options.keep) {
        stopEndingNow();
        await keepRunning();
      }
      return isComplete;
    } finally {
      await service.stop();
    }
  } finally {
    redis.disconnect();
    await Promise.all([db.end(), close()]);
    await stack?.stop();
  }
}

/** Ports that never clash, another data folder, and an administrator for every type that has one. */
function demoDefaults(catalogFile?: string): Record<string, string> {
  const types = catalogFile === undefined ? {} : { NOTIFICATION_CATALOG_FILE: catalogFile };
  const admins = Object.keys(adminEmailVariablesOf(loadConfig(environmentWith(types)).catalog)).map(
    (name) => [name, 'ops@example.com'] as const,
  );
  return {
    ...types,
    ...Object.fromEntries(admins),
    NOTIFICATION_DEV_BASE_PORT: '0',
    NOTIFICATION_DATA_DIR: '.data/demo',
    NOTIFICATION_INTERNAL_HTTP_ADDR: '127.0.0.1:0',
    NOTIFICATION_LOG_LEVEL: 'error',
  };
}

/** Each type once, and a type with two audiences for each of them. */
async function publishSamples(
  catalog: Catalog,
  redis: Redis,
  stream: string,
): Promise<{ intent: NotificationIntent; notificationId: string }[]> {
  const run = Date.now().toString(36);
  const published = [];
  for (const { type, audiences, isRetired } of catalog.types.values()) {
    for (const audience of isRetired ? [] : audiences) {
      const intent = sampleIntentOf(catalog, type, audience, `demo/${run}/${type}/${audience}`);
      published.push({ intent, notificationId: await publishIntent(redis, intent, { stream }) });
    }
  }
  return published;
}

async function awaitDeliveries(
  redis: Redis,
  db: pg.Client,
  { values, catalog }: ReturnType<typeof loadConfig>,
  published: { intent: NotificationIntent; notificationId: string }[],
): Promise<IntentResult[]> {
  const deadline = Date.now() + DELIVERY_LIMIT_MS;
  for (;;) {
    const outbound = await readOutbound(catalog, redis, values, published[0]?.notificationId ?? '-');
    const results: IntentResult[] = [];
    for (const { intent, notificationId } of published) {
      const { rows } = await db.query<RouteRow>(
        'SELECT route_id, status, last_error_message FROM notification.routes WHERE notification_id = $1 ORDER BY route_id',
        [notificationId],
      );
      results.push({
        type: intent.notificationType,
        audience: intent.audienceKind,
        notificationId,
        routes: rows.length > 0 ? rows.map((row) => resultOf(notificationId, row, outbound)) : [notAccepted],
      });
    }
    const isSettled = results.every(({ routes }) => routes.every(({ problem }) => problem === undefined));
    if (isSettled || Date.now() > deadline) return results;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

const notAccepted: RouteResult = { route: '-', status: 'missing', problem: 'the intent was not accepted' };

interface OutboundEntry {
  stream: string;
  entryId: string;
  content: string;
}

/** Everything on both outbound streams since the first intent, by the id that consumers deduplicate on. */
async function readOutbound(
  catalog: Catalog,
  redis: Redis,
  values: ReturnType<typeof loadConfig>['values'],
  since: string,
): Promise<Map<string, OutboundEntry[]>> {
  const found = new Map<string, OutboundEntry[]>();
  const read = async (
    stream: string,
    idField: string,
    contentOf: (fields: Map<string, Buffer>) => string,
  ) => {
    for (const [id, flat] of await redis.xrangeBuffer(stream, since, '+')) {
      const fields = new Map<string, Buffer>();
      for (let i = 0; i + 1 < flat.length; i += 2) fields.set(flat[i]!.toString(), flat[i + 1]!);
      const key = fields.get(idField)?.toString() ?? '';
      found.set(key, [
        ...(found.get(key) ?? []),
        { stream, entryId: id.toString(), content: contentOf(fields) },
      ]);
    }
  };
  await read(values.NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM, 'event_id', (fields) => {
    const type = fields.get('event_type')!.toString();
    return JSON.stringify(readPushPayload(catalog, type, fields.get('payload_bytes')!));
  });
  await read(values.NOTIFICATION_MAIL_DELIVERY_COMMANDS_STREAM, 'delivery_id', (fields) => {
    const mail = JSON.parse(fields.get('payload_json')!.toString()) as MailCommandPayload;
    return `${mail.template_id}/${mail.locale} to ${mail.to.join()}`;
  });
  return found;
}

function resultOf(
  notificationId: string,
  { route_id: route, status, last_error_message: error }: RouteRow,
  outbound: Map<string, OutboundEntry[]>,
): RouteResult {
  const entries = outbound.get(`${notificationId}/${route}`) ?? [];
  if (status === 'skipped') {
    return { route, status, ...(entries.length === 0 ? {} : { problem: 'skipped, and yet delivered' }) };
  }
  const [deliveredAs] = entries;
  if (status !== 'published' || !deliveredAs) return { route, status, problem: error ?? 'not delivered' };
  return {
    route,
    status,
    deliveredAs,
    afterMs: Number(deliveredAs.entryId.split('-')[0]) - Number(notificationId.split('-')[0]),
    ...(entries.length > 1 ? { problem: `delivered ${entries.length} times` } : {}),
  };
}

function tableOfResults(results: IntentResult[]): string {
  const rows = results.flatMap(({ type, notificationId, routes }) =>
    routes.map(({ route, status, deliveredAs, afterMs, problem }, index) => [
      index === 0 ? type : '',
      index === 0 ? notificationId : '',
      route,
      problem ? `${status}: ${problem}` : status,
      afterMs === undefined ? '' : `${afterMs} ms`,
      deliveredAs ? `${deliveredAs.stream} ${deliveredAs.entryId}` : '',
      deliveredAs?.content ?? '',
    ]),
  );
  const head = ['TYPE', 'NOTIFICATION', 'ROUTE', 'STATUS', 'AFTER', 'DELIVERED AS', 'CONTENT'];
  return `\n${tableOf(head, rows)}\n\n`;
}

function verdict(
  results: IntentResult[],
  devices: DeviceResult[],
  isComplete: boolean,
  uiUrl: string | undefined,
  namespace: string,
): string {
  const routes = results.flatMap((result) => result.routes);
  const count = (status: string) => routes.filter((route) => route.status === status).length;
  const problems = [...routes, ...devices].filter(({ problem }) => problem !== undefined).length;
  const [first] = results;
  const link =
    uiUrl && first
      ? workflowLink({ uiUrl, namespace }, notificationWorkflowId(first.notificationId))
      : undefined;
  return [
    `${results.length} intents: ${count('published')} routes published, ${count('skipped')} skipped as the catalog says.`,
    ...(devices.length > 0 ? [`1 mobile push to ${devices.length} devices.`] : []),
    isComplete ? 'All of it arrived, exactly once.' : `${problems} of these did NOT arrive as they should.`,
    ...(uiUrl ? [`Temporal Web UI: ${uiUrl}`] : []),
    ...(link ? [`The first notification: ${link}`] : []),
  ].join('\n');
}

/** Does a part of the demo, and says in one line how long it took. */
async function step<T>(what: string, work: () => Promise<T>): Promise<T> {
  const startedAt = Date.now();
  const result = await work();
  reportStep(report, startedAt, what);
  return result;
}

async function keepRunning(): Promise<void> {
  report('Everything keeps running. Ctrl-C stops it.');
  await new Promise((resolve) => void onInterrupt(resolve));
}

await runProgram(main);
