/** `intents`: publishing one by hand, checks of the service on intents in files, examples, and which ones wait. */
import { randomUUID } from 'node:crypto';
import type { Command } from 'commander';
import { given } from '../../api/given.ts';
import type { AudienceKind, Catalog, NotificationType, TypeSpec } from '../../api/intent/catalog.ts';
import { AUDIENCE_KINDS, typeIn } from '../../api/intent/catalog.ts';
import { entryFieldsOf, envelopeOf, parseIntent, fingerprintOf } from '../../api/intent/entry.ts';
import { isJsonObject, jsonIn, shellWord } from '../../api/text.ts';
import type { NotificationIntent } from '../../client/constructors.ts';
import { InvalidIntentError, newIntent, publishIntent } from '../../client/constructors.ts';
import { unlessMissing } from '../../client/errors.ts';
import type { NotificationView } from '../../client/intent/notifications.ts';
import { SAMPLE_USERS, sampleIntentOf } from '../../client/testing.ts';
import { linkField } from '../../client/resources.ts';
import { waitUntil } from '../../client/temporal.ts';
import type { Config } from '../../config/load.ts';
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import type { GlobalOptions } from '../command.ts';
import { EXIT, UsageError, action, parseJson, readText } from '../command.ts';
import { defineLocal, form, list, option } from '../definition.ts';
import { addPair, catalogOfShell, parseFuture, parseTime, parseType, waitLimitOption } from '../options.ts';
import { countOf, printHeading, printItems, printJson, printLine, report } from '../output.ts';
import type { Session } from '../session.ts';
import { withRedis, withSession } from '../session.ts';
import { printNotification } from './notifications.ts';

const FORMS = `
A file has one intent, or an array of them, as JSON; - reads standard input. An intent has the fields of its stream entry, all of
them text:
  {"notification_type": "game.turn.ready", "payload_json": "{\\"game_id\\": …}", …}
Exit code 1 when one of them would be refused.
`;

type Verdict = { type: string; fingerprint: string } | { code: string; problem: string };

export function addTo(intents: Command): void {
  addPublish(intents);

  defineLocal(intents, {
    name: 'validate',
    description: 'Check intents in files as the service does, without any server.',
    args: [['<files...>', 'files with intents as JSON']],
    above: FORMS,
    examples: ['intents validate intents/*.json', 'intents validate --json - < intent.json'],
    async run(_session, _options: object, files: string[]) {
      const catalog = catalogOfShell();
      const verdicts = files.map(async (file) =>
        verdictsOf(catalog, await readText(file)).map((verdict, index) => ({
          ...{ file, intent: index + 1 },
          ...verdict,
        })),
      );
      return { items: (await Promise.all(verdicts)).flat() };
    },
    print({ items }) {
      if (items.length === 0) return;
      printItems(items, {
        FILE: 'file',
        INTENT: 'intent',
        VERDICT: (verdict) => ('code' in verdict ? verdict.code : 'valid'),
        'TYPE OR PROBLEM': (verdict) => ('code' in verdict ? verdict.problem : verdict.type),
      });
    },
    end({ items }) {
      const refused = items.filter((verdict) => 'code' in verdict).length;
      report(`${countOf(items.length, 'intent')}, ${refused} would be refused`);
      if (items.length === 0) return EXIT.nothing;
      return refused > 0 ? EXIT.failed : EXIT.done;
    },
  });

  list(intents, {
    name: 'waiting',
    description:
      'List intents that are neither accepted nor refused yet, those that were tried first, longest first.',
    examples: ['intents waiting', 'notifications cancel 1790000000000-0'],
    read: ({ operator }: Session) => operator.intents.waiting,
    columns: {
      SINCE: 'waitingSince',
      NOTIFICATION: 'notificationId',
      TYPE: 'type',
      ATTEMPT: 'attempt',
      KEY: 'idempotencyKey',
      REASON: ({ reason }) => reason ?? 'its turn has not come',
    },
  });

  form(intents, {
    name: 'sample',
    description: 'Show an example of a type, ready to be published; without a type, list all types.',
    args: [['[type]', 'one type', parseType]],
    examples: ['intents sample', 'intents sample lobby.invite.created'],
  }).action(
    action<object, [NotificationType | undefined]>(async ({ json }, type) =>
      type === undefined ? listTypes(json) : showSamples(type, json),
    ),
  );
}

function listTypes(json: boolean | undefined): void {
  const items = [...catalogOfShell().types.values()].map(
    ({ type, producer, audiences, channels, fields, isRetired }) => ({
      ...{ type, producer, audiences },
      channels: Object.fromEntries(audiences.map((audience) => [audience, channels[audience]])),
      fields: fields.flatMap(({ name, isRequired }) => (isRequired ? [name] : [])),
      ...(isRetired ? { isRetired } : {}),
    }),
  );
  if (json) return printJson({ items });
  printItems(items, {
    TYPE: 'type',
    PRODUCER: 'producer',
    'AUDIENCE: CHANNELS': ({ channels }) =>
      Object.entries(channels)
        .map(([audience, names]) => `${audience}: ${names.join(', ')}`)
        .join('; '),
    FIELDS: ({ fields }) => fields.join(', '),
  });
}

function showSamples(type: NotificationType, json: boolean | undefined): void {
  const catalog = catalogOfShell();
  const samples = typeIn(catalog, type).audiences.map((audience) => ({
    audience,
    fields: envelopeOf(sampleIntentOf(catalog, type, audience, `sample/${Date.now()}`)),
  }));
  if (json) return printJson({ type, samples });
  for (const { audience, fields } of samples) {
    printHeading(`${type} to ${audience === 'user' ? 'users' : 'administrators'}`);
    const recipients = audience === 'user' ? '--to user-1,user-4' : '--audience admin_email';
    printLine(
      `galaxy-notify intents publish ${type} ${recipients} --key ${fields['idempotency_key']} --payload ${shellWord(fields['payload_json']!)}`,
    );
    printLine();
    const pairs = Object.entries(fields).map(([name, value]) => `  ${name} ${shellWord(value)}`);
    printLine(`redis-cli XADD notification:intents '*' \\\n${pairs.join(' \\\n')}`);
  }
}

/** @returns a verdict for each intent in a text; what is wrong is told without quoting it. */
export function verdictsOf(catalog: Catalog, text: string): Verdict[] {
  const value = jsonIn(text);
  if (value === undefined) return [{ code: 'invalid_envelope', problem: 'the file is not valid JSON' }];
  return [value].flat().map((one) => verdictOf(catalog, one));
}

function verdictOf(catalog: Catalog, value: unknown): Verdict {
  const isEntry =
    isJsonObject(value) &&
    Object.values(value).every((field) => typeof field === 'string' && field.isWellFormed());
  if (!isEntry) return { code: 'invalid_envelope', problem: 'an intent must be a JSON object of texts' };
  const parsed = parseIntent(catalog, '0-0', entryFieldsOf(value as Record<string, string>));
  if (!parsed.ok) {
    return { code: parsed.malformed.failureCode, problem: parsed.malformed.failureMessage };
  }
  return { type: parsed.intent.notificationType, fingerprint: fingerprintOf(parsed.intent) };
}

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
  wait?: boolean;
  timeout: number;
}

function addPublish(intents: Command): void {
  form(intents, {
    name: 'publish',
    description:
      'Check an intent as the service does, publish it, and print the notification id. Needs Redis only, except with --wait.',
    args: [['<type>', 'notification type, see intents sample', parseType]],
    options: [
      option('--to <user ids>', 'recipients, comma-separated', (ids) => ids.split(',')),
      option('--audience <audience>', 'admin_email: the administrators').choices(AUDIENCE_KINDS),
      option(
        '--key <key>',
        'idempotency key, required without --sample: with the same content and --occurred-at it has no effect again, else it is refused',
      ),
      option(
        '--sample',
        'content of an example, on top of which the other options are; each time with another key unless --key is given',
      ),
      option('--payload <json>', 'payload as a JSON object'),
      option('--field <name=value>', 'one payload field, on top of the payload; may be repeated', addPair),
      option(
        '--occurred-at <time>',
        'when the event happened: an ISO time, or 1h for an hour ago; default: now',
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
      const intent = intentOf(type, key, options);
      if (!options.wait) {
        return withRedis(async (redis, config, webUi) => {
          const notificationId = await publishIntent(redis, intent, streamIn(config));
          const { link } = linkField(webUi, notificationWorkflowId(notificationId));
          if (options.json) printJson({ notificationId, link });
          else printLine(notificationId);
          if (link !== undefined) report(link);
        });
      }
      return withSession(['redis', 'postgres', 'temporal'], async ({ resources, operator, config }) => {
        const notificationId = await publishIntent(resources.redis, intent, streamIn(config));
        const show = () => operator.notifications.show(notificationId);
        const settled = await waitUntil(
          async () => {
            // For a moment its entry is read and has no row.
            const view = await show().catch(unlessMissing);
            return view && isSettled(view) ? view : undefined;
          },
          { limitMs: options.timeout },
        );
        const view = settled ?? (await show());
        if (options.json) printJson(view);
        else printNotification(view);
        if (!settled) report('not settled in time; see notifications show, and doctor');
        if (settled && !settled.record) report('it was refused, or is a duplicate of an earlier one');
        return settled?.record && !view.totals['dead_letter'] ? EXIT.done : EXIT.failed;
      });
    }),
  );
}

const streamIn = ({ values }: Config) => ({ stream: values.NOTIFICATION_INTENTS_STREAM });

/** Nothing will happen to it by itself. */
function isSettled({ stage, totals }: NotificationView): boolean {
  if (stage !== 'accepted') return stage === 'malformed' || stage === 'ended';
  return !totals['pending'] && !totals['failed'];
}

/** @throws UsageError with what the service would have recorded about the intent. */
function intentOf(
  type: NotificationType,
  idempotencyKey: string,
  options: PublishOptions,
): NotificationIntent {
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
  const { audience, deliverAt, expiresAt, requestId, traceId, traceparent } = options;
  const more = { deliverAt, expiresAt, requestId, traceId, traceparent };
  const fields = given({ audience, recipientUserIds: to, ...more });
  try {
    return newIntent(catalog, type, { idempotencyKey, payload, occurredAt, ...fields });
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
