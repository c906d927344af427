/**
 * Incidents, one after the other on separate servers: the command that the first-night page names shows the cause. The last
 * ones break what cannot be repaired.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import type { AddressInfo, Server } from 'node:net';
import { createServer } from 'node:net';
import path from 'node:path';
import { appendInputs } from '../../client/account-callback/inputs.ts';
import type { Operator } from '../../client/operator.ts';
import { createLoopbackCertificate } from '../../dev/stand-ins/certificate.ts';
import { createDeviceTokens } from '../../dev/stand-ins/mobile-push/device-tokens.ts';
import { migrate } from '../../migrations/migrate.ts';
import { HOUR, hour, takeCallbackBench } from '../account-callback/callbacks.ts';
import type { CallbackBench } from '../account-callback/callbacks.ts';
import { cliFor } from '../command-line.ts';
import type { Slot } from '../harness.ts';
import { eventually, operatorOf, takeSlot } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';
import { mobilePushOf } from '../mobile-push/jobs.ts';
import type { OwnStack } from '../own-stack.ts';
import { startOwnStack } from '../own-stack.ts';
import { GATEWAY } from '../service-process.ts';
import type { SymbolRegistry } from '../symbol-config/registry.ts';
import { takeSymbolRegistry } from '../symbol-config/registry.ts';

const PAGE = readFileSync(path.join(import.meta.dirname, '../../docs/operate/first-night.md'), 'utf8');
const INTENTS = 'notification:intents';
const BY = { requestedBy: 'nina', reason: 'INC-42' };
/** Statuses and lists are some seconds behind. */
const SHOWN_WITHIN_MS = 15_000;
const DAY_MS = 86_400_000;

let own: OwnStack;
let slot: Slot;
let cli: ReturnType<typeof cliFor>;
let operator: Operator;
let symbols: SymbolRegistry;
let bench: CallbackBench;
let silent: Server;

beforeAll(async () => {
  own = await startOwnStack('incidents');
  slot = await takeSlot({ ownStack: own.stack });
  await createDeviceTokens(slot.ownerDsn, { samples: false });
  await migrate(slot.ownerDsn);
  [symbols, bench] = await Promise.all([
    takeSymbolRegistry(slot),
    takeCallbackBench(slot, { acceptsUnsigned: true }),
  ]);
  silent = createServer((socket) => socket.unref()).listen(0, '127.0.0.1');
  cli = cliFor(slot);
  operator = operatorOf(slot);
  await start();
}, 300_000);
afterAll(async () => {
  silent?.close();
  cli?.dispose();
  await slot?.stopServices();
  await symbols?.release();
  await bench?.release();
  await slot?.release();
  await own?.stop();
}, 120_000);

const start = () =>
  slot.startService(
    {
      NOTIFICATION_ROLES: ROLES,
      NOTIFICATION_ROUTE_BACKOFF_MIN: '50ms',
      NOTIFICATION_ROUTE_BACKOFF_MAX: '100ms',
      NOTIFICATION_CALLBACK_SHARDS: '1',
      NOTIFICATION_CALLBACK_RETRY_LADDER: '1h',
      NOTIFICATION_SYMBOL_RETRY_LADDER: '1h',
      NOTIFICATION_MOBILE_SEND_ATTEMPTS: '2',
      NOTIFICATION_FCM_BRAKE: '1s',
      NOTIFICATION_HTTP_TIMEOUT: '1m',
    },
    {
      symbolTargets: symbols.targets.targets,
      sampleSymbols: symbols.targets.sampleSymbols,
      portfolioUrl: bench.portfolio.url,
    },
  );
const ROLES = 'intent,mobile-push,symbol-config,account-callback';

interface Incident {
  what: string;
  /** Brings it about. */
  inject(): Promise<unknown>;
  /** As the page names it, up to its options. */
  command: string;
  /** Behind the command, in the place of what stands in capitals. */
  more?: () => string[];
  env?: () => Record<string, string>;
  shows: RegExp;
  repair?(): Promise<unknown>;
}

const INCIDENTS: Incident[] = [
  {
    what: 'pushes die because the stream of Gateway is no stream',
    inject: async () => {
      await slot.redis.set(GATEWAY, 'not a stream');
      await publishTurn(slot.redis, 'dead-push', ['user-17']);
    },
    command: 'dead-letters list --since 1h',
    shows: /gateway_stream_publish_failed.*WRONGTYPE/,
  },
  {
    what: 'user 17 got nothing',
    inject: () => Promise.resolve(),
    command: 'why user-17',
    shows: /gateway_stream_publish_failed.*WRONGTYPE/,
    repair: () => slot.redis.del(GATEWAY),
  },
  {
    what: 'the User Service answers 500',
    inject: () => {
      slot.userService.fail({ failure: { kind: 'status', status: 500 } });
      return publishTurn(slot.redis, 'no-user-service', ['user-18']);
    },
    command: 'intents waiting',
    shows: /User Service.* 500/,
    repair: async () => slot.userService.heal(),
  },
  {
    what: 'FCM refuses the credential',
    inject: async () => {
      slot.fcm.fail({ failure: { kind: 'error', error: 'UNAUTHENTICATED' } });
      const mobile = mobilePushOf(slot);
      const { userId } = await mobile.userWith('device');
      await mobile.publishTo(userId);
    },
    command: 'mobile list --retrying',
    shows: /messaging\/authentication-error/,
    repair: async () => slot.fcm.heal(),
  },
  {
    what: 'a producer is held, and forgotten',
    inject: () => operator.producers.pause('game_master', BY),
    command: 'producers list',
    shows: /game_master +paused .*nina.*INC-42/,
  },
  {
    what: 'who did that',
    inject: () => Promise.resolve(),
    command: 'actions list --since 1d',
    shows: /nina.*producers pause +game_master/,
    repair: () => operator.producers.resume('game_master', BY),
  },
  {
    what: 'the reader is paused, and forgotten',
    inject: () => operator.bridge.pause(BY),
    command: 'bridge status',
    shows: /paused by +nina[\s\S]*INC-42/,
    repair: () => operator.bridge.resume(BY),
  },
  {
    what: 'a producer publishes what is no intent',
    inject: () =>
      slot.redis.xadd(INTENTS, '*', 'notification_type', 'game.turn.redy', 'producer', 'game_master'),
    command: 'malformed list --since 1h',
    shows: /invalid_|missing|unknown/,
  },
  {
    what: 'Redis is full',
    inject: () => slot.redis.config('SET', 'maxmemory', '1mb'),
    command: 'doctor',
    shows: /maxmemory|memory/i,
    repair: () => slot.redis.config('SET', 'maxmemory', '0'),
  },
  {
    what: 'a target of symbols answers 503 to the last retry',
    inject: async () => {
      symbols.targets.fail({ target: 'eu-west-alert-7', failure: { kind: 'status', status: 503 } });
      await operator.symbols.push();
    },
    command: 'symbols status',
    shows: /^TARGET.*\neu-west-alert-7 .*503[\s\S]*76 of 77 targets/,
    repair: async () => symbols.targets.heal(),
  },
  {
    what: 'the portfolio service answers 503',
    inject: async () => {
      bench.portfolio.fail({ failure: { kind: 'status', status: 503 } });
      await appendInputs(slot.redis, [hour('night-5', Date.now() - (Date.now() % HOUR) - HOUR)]);
      await eventually('its snapshot', async () => {
        const found = await bench.rows('SELECT FROM notification.callback_snapshots');
        return found.length > 0;
      });
      await eventually('an alarm of the shard', () => bench.runNow());
    },
    command: 'callbacks failed',
    shows: /night-5.*503/,
    repair: async () => bench.portfolio.heal(),
  },
  {
    what: 'a router takes connections, and is silent',
    inject: () => Promise.resolve(),
    command: 'doctor --router',
    more: () => [`smp://${'A'.repeat(43)}=@127.0.0.1:${(silent.address() as AddressInfo).port}`],
    shows: /messaging router +error/,
  },
  {
    what: 'a certificate has expired',
    inject: async () => writeFileSync(certificate(), (await createLoopbackCertificate(-0.5)).certPem),
    command: 'doctor',
    env: () => ({ NOTIFICATION_HTTP_CA_FILE: certificate() }),
    shows: /NOTIFICATION_HTTP_CA_FILE +error +expired/,
  },
  {
    what: 'the password of Redis is wrong',
    inject: () => Promise.resolve(),
    command: 'doctor',
    env: () => ({ NOTIFICATION_REDIS_USER: 'operator', NOTIFICATION_REDIS_PASSWORD: 'wrong' }),
    shows: /Redis .*refused the password \(NOTIFICATION_REDIS_PASSWORD\)/,
  },
  {
    what: 'a producer has chosen an id far ahead of the clock',
    inject: () => slot.redis.xadd(INTENTS, `${Date.now() + 400 * DAY_MS}-0`, 'notification_type', 'x'),
    command: 'doctor',
    shows: /stream reader +error +stream_ids_ahead/,
  },
  {
    what: 'no process of the service runs',
    inject: () => slot.stopServices(),
    command: 'doctor',
    shows: /stream reader +\w+ +.*the next worker reads on|no worker/i,
  },
];

const certificate = () => path.join(own.dir, 'expired.pem');

test.each(INCIDENTS)(
  'I40 $command shows the cause: $what',
  async ({ command, more, env, inject, repair, shows }) => {
    expect(PAGE).toContain(`galaxy-notify ${command}`);
    try {
      await inject();
      await eventually(
        `${command} to show ${shows.source}`,
        async () => {
          const { stdout, stderr } = await cli.cli([...command.split(' '), ...(more?.() ?? [])], {
            changes: { NOTIFICATION_ROLES: ROLES, ...env?.() },
          });
          const said = stdout + stderr;
          if (shows.test(said)) return true;
          throw new Error(said);
        },
        SHOWN_WITHIN_MS,
      );
    } finally {
      await repair?.();
    }
  },
);
