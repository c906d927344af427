/** `doctor`: everything the service depends on, at one glance. */
import { once } from 'node:events';
import { createConnection } from 'node:net';
import type { Command } from 'commander';
import { within } from '../api/within.ts';
import type { CertificateExpiry } from '../config/files.ts';
import { certificateExpiries } from '../config/files.ts';
import type { Config } from '../config/load.ts';
import { DEFAULT_INPUT_STREAM } from '../api/account-callback/input.ts';
import { DEFAULT_MOBILE_STREAM } from '../api/mobile-push/job.ts';
import { CONSUMER_GROUP } from '../api/stream-ids.ts';
import type { Top, TopOfKind } from '../client/top.ts';
import { callerCredentials } from '../config/caller.ts';
import { USER_SERVICE } from '../config/intent.ts';
import { needsOf } from '../config/load.ts';
import type { Place } from '../config/wire.ts';
import { openWires, wireProblems } from '../config/wire.ts';
import { ConfigError } from '../config/variables.ts';
import { callbackChecks } from './account-callback/callbacks.ts';
import type { Check, CheckGroup, Diagnosis, Finding } from './checks.ts';
import {
  diagnose,
  error,
  needChecks,
  ok,
  postgresChecks,
  redisChecks,
  sentinelChecks,
  temporalChecks,
  tryAll,
  warn,
  warnIf,
} from './checks.ts';
import { EXIT, action } from './command.ts';
import { form, option } from './definition.ts';
import { checkUserService, diagnoseReader, intentRowChecks, intentStreamChecks } from './intent/check.ts';
import { databaseNeeds, temporalNeeds } from './setup.ts';
import { mobileChecks } from './mobile-push/jobs.ts';
import { countOf, durationOf, printFields, printHeading, printItems, printJson, report } from './output.ts';
import type { Session } from './session.ts';
import { NotConfiguredError, withSession } from './session.ts';
import { readRouter, routerChecks, routerTrial } from './subscription/check.ts';

/** Shorter than a check may take: what does not answer is said with its address. */
const REACH_LIMIT_MS = 4_000;
const CONNECT_LIMIT_MS = 2_000;

export function addTo(command: Command): void {
  form(command, {
    options: [
      option(
        '--router <address>',
        'instead, try one router that speaks its own protocol: smp:// or ntf://fingerprint@host[:port]; - for standard input, which must say it with a password',
      ),
      option('-v, --verbose', 'also show the checks that are ok'),
    ],
    examples: ['doctor', 'doctor --json', 'doctor --router smp://<fingerprint>@smp.example.com'],
  }).action(
    action<{ router?: string; verbose?: boolean }>(async ({ json, router, verbose }) => {
      const findings = await (router === undefined
        ? examine()
        : diagnose([routerTrial(await readRouter(router))]));
      const {
        error: errors = [],
        warn: warnings = [],
        ok: good = [],
      } = Object.groupBy(findings, ({ status }) => status);
      const wrong = [...errors, ...warnings];
      const isWhole = json || verbose || router !== undefined || good.length === 0;
      if (json) printJson({ isHealthy: errors.length === 0, findings });
      else printFindings(isWhole ? [...wrong, ...good] : wrong);
      report(
        `${countOf(errors.length, 'error')}, ${countOf(warnings.length, 'warning')}${isWhole ? '' : `, ${good.length} ok (-v shows them)`}`,
      );
      return errors.length > 0 ? EXIT.failed : EXIT.done;
    }),
  );
}

export async function examine(): Promise<Finding[]> {
  try {
    return await withSession([], (session) => diagnose(groupsOf(session)), REACH_LIMIT_MS);
  } catch (failure) {
    const name = 'configuration';
    if (failure instanceof NotConfiguredError)
      return [{ name, ...error(failure.message, 'nothing else is checked until then') }];
    if (!(failure instanceof ConfigError)) throw failure;
    const hint = 'nothing else is checked until the configuration is right';
    return failure.problems.map((detail) => ({ name, ...error(detail, hint) }));
  }
}

function groupsOf(session: Session): CheckGroup[] {
  const { config, addresses, resources, reach } = session;
  const { values, roles } = config;
  const { redis, db, temporal, namespace } = resources;
  const { taskQueues, schedules } = needsOf(config);
  const routers = values.NOTIFICATION_SUBSCRIPTION_NTF_SERVERS ?? [];
  const ofRole = (role: Config['roles'][number], ...groups: CheckGroup[]) =>
    roles.includes(role) ? groups : [];
  return [
    [
      ['configuration', () => ok('all variables are valid')],
      ['connections', () => diagnoseWires(config)],
      ...certificateExpiries(config.files).map((expiry): Check => [
        `certificate: ${expiry.variable}`,
        () => expiryOf(expiry, Date.now()),
      ]),
    ],
    [
      ...redisChecks(redis, () => reach('redis'), values.NOTIFICATION_REDIS_MIN_REPLICAS),
      ...intentStreamChecks(resources, values),
    ],
    ...sentinelChecks(config),
    [
      ...postgresChecks(db, () => reach('postgres'), config),
      ...needChecks(databaseNeeds(session)),
      ...intentRowChecks(resources),
      ...workChecks(session),
    ],
    [
      ...temporalChecks(resources, () => reach('temporal'), taskQueues),
      ...needChecks(temporalNeeds({ temporal, namespace, schedules })),
      ['stream reader', () => diagnoseReader(resources)],
    ],
    ...ofRole(
      'mobile-push',
      mobileChecks(db, { redis, stream: DEFAULT_MOBILE_STREAM, group: CONSUMER_GROUP }),
    ),
    ...ofRole(
      'account-callback',
      callbackChecks(db, { redis, stream: DEFAULT_INPUT_STREAM, group: CONSUMER_GROUP }),
    ),
    [
      [
        'User Service',
        () =>
          checkUserService(
            addresses.userServiceUrl,
            callerCredentials(config, USER_SERVICE),
            values.NOTIFICATION_USER_SERVICE_TIMEOUT,
          ),
      ],
    ],
    ...config.wires.flatMap(({ name, farSide }): CheckGroup[] =>
      farSide
        ? [[[name, () => tryAll(farSide.places, openConnection, 'can be reached', farSide.meanwhile)]]]
        : [],
    ),
    // Only routers that are configured are tried, stand-ins are not.
    ...(routers.length > 0 ? ofRole('subscription', routerChecks(routers)) : []),
  ];
}

/** Whether the far side of a role can be reached: a connection is opened and closed again, nothing is sent. @throws why not. */
async function openConnection({ url }: Place): Promise<void> {
  const { hostname, port, protocol } = new URL(url);
  const host = hostname.replace(/^\[(.*)\]$/, '$1');
  const socket = createConnection({ host, port: Number(port || (protocol === 'https:' ? 443 : 80)) });
  try {
    await within(CONNECT_LIMIT_MS, once(socket, 'connect'));
  } finally {
    socket.destroy();
  }
}

/** Every kind of work takes up what is due within minutes. Sooner than an alarm rings, which sends operators here, ms. */
const lateMs = (kind: TopOfKind['kind']): number => (kind === 'intent' ? 5 : 15) * 60_000;

/** What to do about work that is late. What died is no check: `top` counts it, and an operator decides about it. */
const REMEDIES: Record<TopOfKind['kind'], string> = {
  intent:
    'what is paused waits for its resume: see channels; are workers running? Of a channel or producer that is draining they are released now; where a resume broke off, resume again; see bridge status, intents waiting',
  'mobile-push': 'see mobile list --status pending; mobile list --replayable, and mobile replay',
  'symbol-config':
    'see symbols status --behind; they are pushed to again until they acknowledge; take those that are gone out of the file of targets',
  'account-callback': 'see callbacks status, and the workflow account-callback/<shard> in the Web UI',
  subscription: 'see subscriptions status, and doctor --router',
};

/** Whether the work of each role is on time, by what `top` counts. */
function workChecks({ operator, config }: Session): Check[] {
  let looked: Promise<Top> | undefined;
  return config.roles.map((role): Check => [
    `work: ${role}`,
    async () => {
      const { kinds } = await (looked ??= operator.top());
      return diagnosisOfWork(kinds.find(({ kind }) => kind === role)!);
    },
  ]);
}

function diagnosisOfWork({ kind, waits, unknown }: TopOfKind): Diagnosis {
  const late = waits.flatMap(({ what, count = 'some', oldestMs }) =>
    oldestMs > lateMs(kind) ? [`${what}: ${count}, the oldest for ${durationOf(oldestMs)}`] : [],
  );
  const wrong = [...late, ...unknown.map((cause) => `cannot be counted: ${cause}`)];
  return warnIf(wrong.length > 0, wrong.join('; ') || 'nothing waits for long', REMEDIES[kind]);
}

function printFindings(findings: Finding[]): void {
  if (findings.length === 0) return;
  printItems(findings, { CHECK: 'name', STATUS: 'status', DETAIL: 'detail' });
  const hints = findings.filter(({ hint }) => hint !== undefined);
  if (hints.length === 0) return;
  printHeading('What to do');
  printFields(hints.map(({ name, hint }) => [name, hint]));
}

// --- Encryption: connections and certificates --------------------------------------------------------------------------

const DAY_MS = 86_400_000;
const SOON_MS = 14 * DAY_MS;

/** @param now ms since the epoch. */
export function expiryOf({ variable, path, expiresAt }: CertificateExpiry, now: number): Diagnosis {
  const leftMs = expiresAt - now;
  const date = new Date(expiresAt).toISOString();
  const what = `replace ${path}, which ${variable} names; processes take it into use by themselves`;
  if (leftMs <= 0) return error(`expired ${durationOf(-leftMs)} ago, ${date}: ${path}`, what);
  const detail = `expires in ${durationOf(leftMs)}, ${date}: ${path}`;
  return warnIf(leftMs < SOON_MS, detail, what);
}

/** Whether connections are encrypted, and both ends proven. */
export function diagnoseWires({ production, wires }: Pick<Config, 'production' | 'wires'>): Diagnosis {
  const open = openWires(wires);
  const counted = `${open.length} of ${countOf(wires.length, 'connection')}`;
  const unneeded = wires.flatMap(({ gaps, isAllowed, connection }) =>
    isAllowed && gaps.length === 0 && connection !== undefined ? [connection] : [],
  );
  const problems = wireProblems(wires);
  if (production && problems.length > 0) {
    return error(`${counted} open: the service refuses to start`, problems.join('; '));
  }
  if (open.length > 0 && production) {
    return warn(
      `${counted} open, by NOTIFICATION_INSECURE=${open.map(({ connection }) => connection).join(',')}`,
      open.flatMap(({ gaps }) => gaps).join('; '),
    );
  }
  if (open.length > 0) {
    return ok(`${counted} open, which production refuses: ${open.map(({ name }) => name).join(', ')}`);
  }
  return warnIf(
    unneeded.length > 0,
    'all are encrypted and proven',
    `take ${unneeded.join(', ')} out of NOTIFICATION_INSECURE: nothing needs it any more`,
  );
}
