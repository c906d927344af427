/** `intents publish`: an intent by hand, and what becomes of it. */
import { randomUUID } from 'node:crypto';
import type { Command } from 'commander';
import type { Redis } from 'ioredis';
import { given } from '../../api/given.ts';
import type { AudienceKind, NotificationType, TypeSpec } from '../../api/intent/catalog.ts';
import { AUDIENCE_KINDS, typeIn } from '../../api/intent/catalog.ts';
import { occurredKey } from '../../api/intent/stream.ts';
import { isJsonObject } from '../../api/text.ts';
import { SAMPLE_USERS } from '../../client/intent/sample-intents.ts';
import { waitForSettlement } from '../../client/intent/waiting.ts';
import type { NotificationIntent } from '../../client/constructors.ts';
import { InvalidIntentError, newIntent, publishIntent } from '../../client/constructors.ts';
import { linkField } from '../../client/resources.ts';
import type { Config } from '../../config/load.ts';
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import type { ExitCode, GlobalOptions } from '../command.ts';
import { EXIT, UsageError, action, parseJson } from '../command.ts';
import { form, option } from '../definition.ts';
import {
  addPair,
  catalogOfShell,
  parseCount,
  parseFuture,
  parseTime,
  parseType,
  waitLimitOption,
} from '../options.ts';
import { countOf, printJson, printLine, report } from '../output.ts';
import { withProgress } from '../progress.ts';
import type { Session } from '../session.ts';
import { withRedis, withSession } from '../session.ts';
import { printNotification } from './notifications.ts';

/** Intents that are appended concurrently. */
const BATCH_SIZE = 100;

/** Ids that are printed one by one. */
const MOST_IDS = 10;

interface PublishOptions extends GlobalOptions {
  to?: string[];
  audience?: AudienceKind;
  key?: string;
  sample?: boolean;
  payload?: string;
  field?: Record<string, string>;
  occurredAt?: Date;
  deliverAt?: Date;
  expiresAt?: Date;
  requestId?: string;
  traceId?: string;
  traceparent?: string;
  count: number;
  wait?: boolean;
  timeout: number;
}

export function addPublishCommand(intents: Command): void {
  form(intents, {
    name: 'publish',
    description:
      'Check an intent as the service does, publish it, and print the notification id; of many, the first and the last. Needs Redis only, except with --wait.',
    args: [['<type>', 'notification type, see intents sample', parseType]],
    options: [
      option('--to <user ids>', 'recipients, comma-separated', (ids) => ids.split(',')),
      option('--audience <audience>', 'admin_email: the administrators').choices(AUDIENCE_KINDS),
      option(
        '--key <key>',
        'idempotency key, required without --sample: the same key with the same content has no effect, with other content it is refused',
      ),
      option(
        '--sample',
        'content of an example, on top of which the other options are; each time with another key unless --key is given',
      ),
      option('--payload <json>', 'payload as a JSON object'),
      option('--field <name=value>', 'one payload field, on top of the payload; may be repeated', addPair),
      option(
        '--occurred-at <time>',
        'when the event happened: an ISO time, or 1h for an hour ago; default: when this key was first published by this command, or now',
        parseTime,
      ),
      option(
        '--deliver-at <time>',
        'when it is delivered: an ISO time, or 1h for in an hour; it can be cancelled until then; default: now',
        parseFuture,
      ),
      option(
        '--expires-at <time>',
        'what is not sent by then is not sent any more: an ISO time, or 1h for in an hour; default: never',
        parseFuture,
      ),
      ...[option('--request-id <id>', 'for correlation'), option('--trace-id <id>', 'for correlation')],
      option('--traceparent <text>', 'W3C trace context of the span that publishes'),
      option(
        '--count <n>',
        'publish n intents, with the keys <key>/1 to <key>/n',
        parseCount(1, 1_000_000),
      ).default(1),
      option('--wait', 'wait until all routes are settled; exit code 1 when one is dead'),
      waitLimitOption('that'),
    ],
    examples: [
      'intents publish game.turn.ready --to user-1,user-2 --key game-7/turn-54 \\\n      --field game_id=game-7 --field game_name=Andromeda --field turn_number=54 --wait',
      'intents publish game.generation_failed --key g-7 --payload "$(cat payload.json)"',
      'intents publish game.turn.ready --sample --wait',
    ],
  }).action(
    action<PublishOptions, [NotificationType]>(async (options, type) => {
      const key = options.key ?? (options.sample ? `sample/${randomUUID()}` : undefined);
      if (key === undefined) throw new UsageError('give --key, or --sample for an example with its own key');
      const intents = intentsOf(type, key, options);
      if (!options.wait) {
        return withRedis(async (redis, config, webUi) =>
          showPublished(await publish(redis, config, intents, key, options), webUi, options),
        );
      }
      return withSession(['redis', 'postgres', 'temporal'], async (session) => {
        const { resources, config } = session;
        const ids = await publish(resources.redis, config, intents, key, options);
        return showSettlement(session, ids, options);
      });
    }),
  );
}

/** @returns the ids in the order of the intents. @throws what Redis fails with, after saying how many are published. */
async function publish(
  redis: Redis,
  { values }: Config,
  created: readonly NotificationIntent[],
  key: string,
  { occurredAt }: PublishOptions,
): Promise<string[]> {
  const stream = values.NOTIFICATION_INTENTS_STREAM;
  const [{ producer, occurredAtMs }] = created as [NotificationIntent];
  const ttlMs = values.NOTIFICATION_IDEMPOTENCY_TTL;
  const timeOfFirst =
    occurredAt === undefined
      ? // Who may only append must say the time, to repeat it.
        await redis.set(occurredKey(producer, key), occurredAtMs, 'PX', ttlMs, 'NX', 'GET').catch(() => null)
      : null;
  const intents = created.map((intent) => ({ ...intent, occurredAtMs: Number(timeOfFirst ?? occurredAtMs) }));
  const ids: string[] = [];
  try {
    await withProgress(intents.length, 'intents published', async (update) => {
      for (let from = 0; from < intents.length; from += BATCH_SIZE) {
        const batch = intents.slice(from, from + BATCH_SIZE);
        ids.push(...(await Promise.all(batch.map((intent) => publishIntent(redis, intent, { stream })))));
        update(ids.length);
      }
    });
  } finally {
    if (ids.length < intents.length) {
      report(
        `${ids.length} of ${intents.length} are known to be published; the same command may be repeated`,
      );
    }
  }
  return ids;
}

type WebUi = Parameters<typeof linkField>[0];

const linked = (ids: readonly string[], webUi: WebUi) =>
  ids.map((notificationId) => ({
    notificationId,
    ...linkField(webUi, notificationWorkflowId(notificationId)),
  }));

function showPublished(ids: readonly string[], webUi: WebUi, { json }: PublishOptions): ExitCode {
  const published = linked(ids, webUi);
  const [first] = published;
  if (json) printJson({ published });
  else if (ids.length > MOST_IDS) printLine(`${ids.length} intents published, ${ids[0]} to ${ids.at(-1)}`);
  else for (const id of ids) printLine(id);
  if (first?.link !== undefined) report(first.link);
  return EXIT.done;
}

/** Waits until the notifications are settled, and shows what became of them. */
async function showSettlement(
  { resources, operator }: Session,
  ids: string[],
  options: PublishOptions,
): Promise<ExitCode> {
  const settlement = await withProgress(ids.length, 'notifications settled', (update) =>
    waitForSettlement(resources, ids, {
      limitMs: options.timeout,
      onProgress: ({ settled, open }) => update(settled, `${countOf(open, 'route')} open`),
    }),
  );
  const { settled, notifications, deadLettered, withoutRecord } = settlement;
  const single = ids.length === 1 ? await operator.notifications.show(ids[0]!) : undefined;
  if (options.json) {
    const published = linked(ids, resources);
    printJson({ published, settlement, ...given({ notification: single }) });
  } else if (single) printNotification(single);
  else {
    printLine(
      `${settled} of ${notifications} notifications settled: ${settlement.published} routes published, ${settlement.skipped} skipped, ${deadLettered} dead, ${settlement.open} open; ${withoutRecord} without a record`,
    );
  }
  if (settled < notifications) report('not settled in time; see notifications show, and doctor');
  if (withoutRecord > 0) report(`${withoutRecord} were refused, or are duplicates of earlier ones`);
  return settled < notifications || deadLettered > 0 || withoutRecord > 0 ? EXIT.failed : EXIT.done;
}

/** @throws UsageError with what the service would have recorded about the intent. */
function intentsOf(type: NotificationType, key: string, options: PublishOptions): NotificationIntent[] {
  const catalog = catalogOfShell();
  const spec = typeIn(catalog, type);
  const payload = {
    ...(options.sample ? spec.example : {}),
    ...payloadOf(options),
    ...fieldsOf(spec, options.field),
  };
  const isToUsers = spec.audiences.includes('user') && options.audience !== 'admin_email';
  const to = options.to ?? (options.sample && isToUsers ? SAMPLE_USERS : undefined);
  const occurredAt = options.occurredAt ?? new Date();
  const keys =
    options.count === 1 ? [key] : Array.from({ length: options.count }, (_, index) => `${key}/${index + 1}`);
  const { audience, deliverAt, expiresAt, requestId, traceId, traceparent } = options;
  const more = { deliverAt, expiresAt, requestId, traceId, traceparent };
  const fields = given({ audience, recipientUserIds: to, ...more });
  try {
    return keys.map((idempotencyKey) =>
      newIntent(catalog, type, { idempotencyKey, payload, occurredAt, ...fields }),
    );
  } catch (error) {
    if (!(error instanceof InvalidIntentError)) throw error;
    throw new UsageError(
      `the service would refuse this intent: ${error.code}, ${error.message}; see intents sample ${type}`,
    );
  }
}

function payloadOf({ payload = '{}' }: PublishOptions): Record<string, unknown> {
  const parsed = parseJson(payload, 'the payload');
  if (!isJsonObject(parsed)) throw new UsageError('the payload must be a JSON object');
  return parsed;
}

/** Fields are text, except where the catalog wants a number or a boolean. */
function fieldsOf({ fields: known }: TypeSpec, fields: Record<string, string> = {}): Record<string, unknown> {
  const kinds = new Map(known.map(({ name, field }) => [name, field.type]));
  const valueOf = (kind: string | undefined, text: string): unknown => {
    if (kind === 'integer' && text.trim() !== '' && Number.isSafeInteger(Number(text))) return Number(text);
    return kind === 'boolean' && /^(true|false)$/.test(text) ? text === 'true' : text;
  };
  return Object.fromEntries(
    Object.entries(fields).map(([name, text]) => [name, valueOf(kinds.get(name), text)]),
  );
}
