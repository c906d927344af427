/**
 * Writes the pages of docs/reference from the command tree, `.env.example`, the metrics, the table of states,
 * the lists of failure codes and the contracts. `npm run generate` runs it; `--check` fails when a page differs.
 */
import { globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { parse } from 'yaml';
import type { z } from 'zod';
import type { MalformedInputCode } from '../api/account-callback/input.ts';
import type { MalformedCode } from '../api/intent/entry.ts';
import type { MalformedJobCode } from '../api/mobile-push/job.ts';
import { EXIT } from '../cli/command.ts';
import { commandsBelow, pathOf } from '../cli/definition.ts';
import { programOf } from '../cli/program.ts';
import { VARIABLES } from '../config/load.ts';
import { OTEL_FIXED } from '../config/service.ts';
import type { StreamFindingKind } from '../workflows/intent/contract.ts';
import type { PublicationFailure } from '../workflows/failures.ts';
import { instruments } from './instruments.ts';
import { STATES } from './states.ts';

const ROOT = path.dirname(import.meta.dirname);
const FOLDER = path.join(ROOT, 'docs/reference');
const read = (file: string): string => readFileSync(path.join(ROOT, file), 'utf8');

const code = (text: string): string => `\`${text}\``;
const cell = (text: string): string => text.replace(/\s+/g, ' ').replaceAll('|', '\\|').trim();
const firstSentence = (text: string): string => text.split(/[.:;](?: |$)/)[0]!;

/** A Markdown table without padding. */
const table = (heads: string[], rows: string[][]): string =>
  [heads, heads.map(() => '-'), ...rows].map((row) => `|${row.map(cell).join('|')}|`).join('\n');

const page = (title: string, ...parts: string[]): string =>
  `${[`# ${title}`, '<!-- Written by dev/reference.ts: npm run generate -->', ...parts].join('\n\n')}\n`;

const EXITS = {
  done: 'done',
  failed: 'failed: a dependency does not answer, or the operation did not succeed',
  usage: 'wrong usage',
  nothing: 'not found, nothing matched, or nothing left to do',
  interrupted: 'stopped with Ctrl-C',
} satisfies Record<keyof typeof EXIT, string>;

async function commands(): Promise<string> {
  const program = programOf();
  const rows = commandsBelow(program)
    .filter((command) => command.commands.length === 0)
    .map((command) => {
      const usage = command.usage().replace(/\[options\] ?/, '');
      return [
        code(`${pathOf(command)} ${usage}`.trim()),
        firstSentence(command.summary() || command.description()),
      ];
    });
  const global = program.options
    .filter(({ long }) => long !== '--version')
    .map(({ long, description }) => `${code(long ?? '')} (${description})`);
  return page(
    'Commands',
    `Commands of \`galaxy-notify\`, in a clone \`bin/gn\`. \`--help\` shows the options of a command. Options of all commands: ${global.join('; ')}.`,
    `Exit codes: ${Object.entries(EXITS)
      .map(([name, meaning]) => `${EXIT[name as keyof typeof EXIT]} ${meaning}`)
      .join('; ')}.`,
    table(['command', 'what it does'], rows),
  );
}

function variables(): string {
  const all = read('.env.example').split('\n');
  const lines = all.slice(
    0,
    all.findIndex((line) => line.startsWith('## Administrators')),
  );
  const sections = lines.flatMap((line, index) => {
    if (line.startsWith('## ')) {
      return ['', `## ${line.slice(3)}`, '', '|variable|default|meaning|', '|-|-|-|'];
    }
    const [, name, value = ''] = /^# ([A-Z0-9_]+)=(.*)$/.exec(line) ?? [];
    return name === undefined ? [] : [variableRow(name, value, lines[index - 1]!.slice(2))];
  });
  return page(
    'Variables',
    'Durations are written as `250ms`, `90s`, `1m30s`, `2h` or `7d`. An empty value counts as not set. `.env.example` says more about each. A *required* variable must be set in production, *by role* for processes that use it. A *secret* is never printed, and may come in a [file](../operate/keys.md).',
    sections.join('\n').trim(),
    '## Administrators',
    'Addresses, comma-separated, for each type with the audience `admin_email`: `geo.review_recommended` has `NOTIFICATION_ADMIN_EMAILS_GEO_REVIEW_RECOMMENDED`.',
    '## OpenTelemetry',
    `Its packages read other standard variables by themselves, such as \`OTEL_SERVICE_NAME\`, \`OTEL_RESOURCE_ATTRIBUTES\`, \`OTEL_TRACES_SAMPLER\`, and time-out, compression and certificates of \`OTEL_EXPORTER_OTLP_*\`. With one possible value: ${[...OTEL_FIXED].map((pair) => pair.map(code).join(' = ')).join(', ')}.`,
  );
}

function variableRow(name: string, value: string, comment: string): string {
  const REQUIRED = ' Required in production.';
  const row = Object.entries<z.ZodType>(VARIABLES)
    .find(([one]) => one === name)?.[1]
    .meta();
  const isByRole = /required in production by the role/i.test(comment);
  const required = comment.endsWith(REQUIRED) ? 'required' : isByRole ? 'by role' : '';
  const production = [required, row?.secret ? 'secret' : ''].filter(Boolean).join(', ');
  const [sentence = ''] = comment.split(/\.? (?:Required|required in production)|(?<=\.) (?=[A-Z])/);
  const meaning = cell(sentence.includes(': ') ? sentence : sentence.split('; ')[0]!).replace(/[.;,]$/, '');
  return `|${code(name)}|${value === '' ? '' : code(value)}|${meaning}${production && ` *(${production})*`}|`;
}

const metrics = (): string =>
  page(
    'Metrics',
    'Each name begins with `notification.`. Prometheus shows dots as underscores, appends `_milliseconds` or `_seconds` for the unit, and `_total` to a counter. Every process reports the same value of a gauge: take the maximum, not the sum. Counts of rows end at 100,000, and an age is 0 when nothing waits. Metrics of the Temporal SDK (`temporal_*`) go to the same collector.',
    table(
      ['metric', 'kind', 'meaning'],
      instruments()
        .sort((one, other) => (one.name < other.name ? -1 : 1))
        .map(({ name, kind, unit, description = '' }) => [
          code(name.replace('notification.', '')),
          unit === undefined ? kind : `${kind}, ${unit}`,
          description.split('; ')[0]!,
        ]),
    ),
  );

function states(): string {
  const kinds = [...new Set(STATES.map(({ kind }) => kind))];
  const commandsOf = (text: string): string => {
    if (text === '-') return '';
    if (/^(signal|update) /.test(text)) return text;
    return text.split(', ').map(code).join(' ');
  };
  // Leaves out a table that needs no command, and a value that ends like another one.
  const isNews = ({ row, end, command }: (typeof STATES)[number]): boolean =>
    !end.startsWith('as ') && (command !== '-' || row.includes('.status '));
  const tableOf = (kind: string): string => {
    let above = '';
    const shown = STATES.filter((state) => state.kind === kind && isNews(state));
    const rows = shown.map(({ row, meaning, end, command }) => {
      const [column = '', ...value] = row.split(' ');
      const words = [...(column === above ? [] : [column]), ...(value.length > 0 ? [value.join(' ')] : [])];
      above = column;
      return [words.map(code).join(' '), meaning, end, commandsOf(command)];
    });
    return table(['row', 'meaning', 'ends by itself', 'command'], rows);
  };
  return page(
    'States',
    'The states of rows in PostgreSQL that need or needed work, with the command of `galaxy-notify` that helps. A value without a column belongs to the column above it. A *final* row stays until retention deletes it.',
    ...kinds.flatMap((kind) => [`## ${kind}`, tableOf(kind)]),
  );
}

/** The codes of each list with their meaning; a missing code fails the type check. */
const CODES: [title: string, note: string, codes: Record<string, string>][] = [
  [
    'Intents: `malformed_intents`',
    'The entry is stored with its reason, and no recipient gets anything. `galaxy-notify malformed list --code CODE` finds it.',
    {
      invalid_envelope:
        'a field is missing, unknown in its form, or occurs twice, or another producer has the type',
      unknown_notification_type: 'the catalog does not have the type, or has retired it',
      invalid_audience: 'the type does not have this audience',
      invalid_recipients: 'the list of recipients is empty, repeats an id, or is no list of ids',
      invalid_payload: 'the payload is no JSON object with the fields of the type',
      entry_too_large: 'the entry exceeds its limit of bytes or fields',
      idempotency_conflict: 'an earlier intent has the key and other content',
      recipient_not_found: 'the User Service does not know a recipient',
      entry_id_reused: 'the stream gave an id twice with different content',
      unstorable: 'PostgreSQL refuses the text',
    } satisfies Record<MalformedCode, string>,
  ],
  [
    'Intents: dead letters',
    'The classification of the last failure. `galaxy-notify dead-letters list --failure CODE` finds the routes, `galaxy-notify replay` sends them again.',
    {
      gateway_stream_publish_failed: 'Redis did not accept the push event',
      mail_stream_publish_failed: 'Redis did not accept the e-mail command',
      payload_encoding_failed: 'the stored payload does not fit the contract; a replay fails again',
    } satisfies Record<PublicationFailure, string>,
  ],
  [
    'Intents: findings of the stream',
    '`galaxy-notify bridge status` and the metric `notification.intent_stream.findings` show them.',
    {
      entries_lost: 'entries are gone that were never read',
      stream_regressed: 'the stream ends before the read position',
      stream_missing: 'the stream is gone',
      postgres_regressed: 'PostgreSQL is older than the read position',
      eviction_enabled: 'Redis may evict keys',
      stream_ids_ahead: 'an entry id is ahead of the clock',
    } satisfies Record<StreamFindingKind, string>,
  ],
  [
    'Mobile pushes: refused jobs',
    'Devices fail with the codes of `firebase-admin` (`messaging/…`), of Node, or `expired`. `galaxy-notify mobile list --code CODE` finds the jobs.',
    {
      entry_too_large: 'the entry exceeds its limit',
      invalid_entry: 'the entry mixes `payload` with other fields, or repeats one',
      invalid_payload: 'the payload is no JSON object',
      missing_field: '`userId` is missing, or there is nothing to send',
      invalid_field: 'the value of a field is invalid',
      invalid_message: 'FCM would refuse the message',
      unstorable: 'PostgreSQL refuses the text',
    } satisfies Record<MalformedJobCode, string>,
  ],
  [
    'Account callbacks: refused inputs',
    '`galaxy-notify callbacks malformed list --code CODE` finds them.',
    {
      entry_too_large: 'the entry exceeds 16 KiB',
      invalid_entry: 'the entry has other fields than `payload`',
      invalid_payload: 'the payload breaks its schema',
      unstorable: 'PostgreSQL refuses the text',
    } satisfies Record<MalformedInputCode, string>,
  ],
];

const failureCodes = (): string =>
  page(
    'Failure codes',
    ...CODES.flatMap(([title, note, codes]) => [
      `## ${title}`,
      note,
      table(
        ['code', 'meaning'],
        Object.entries(codes).map(([name, meaning]) => [code(name), meaning]),
      ),
    ]),
  );

interface Contract {
  info: { title: string };
  channels?: Record<string, { address: string }>;
  paths?: Record<string, Record<string, unknown>>;
}

/** Contracts that are no OpenAPI or AsyncAPI document. */
const OTHER_CONTRACTS: [file: string, title: string][] = [
  ['api/intent/notification.fbs', 'FlatBuffers schema of push events'],
  ['api/intent/vectors.json', 'intents with the answer of the service, for clients in any language'],
  ['api/intent/outcome-vectors.json', 'outcomes, for readers in any language'],
  ['api/payload-vectors.json', 'encrypted payloads, for codecs in any language'],
];

function contracts(): string {
  const link = (file: string): string => `[${file}](${path.relative(FOLDER, path.join(ROOT, file))})`;
  const rows = globSync('api/**/*.yaml', { cwd: ROOT })
    .sort()
    .map((file) => {
      const { info, channels = {}, paths = {} } = parse(read(file)) as Contract;
      const places = [
        ...Object.values(channels).map(({ address }) => code(address)),
        ...Object.entries(paths).flatMap(([place, methods]) =>
          Object.keys(methods).map((method) => code(`${method.toUpperCase()} ${place}`)),
        ),
      ];
      return [link(file), info.title, places.join('<br>')];
    });
  return page(
    'Contracts',
    'OpenAPI and AsyncAPI documents of every stream and endpoint, and the test vectors.',
    table(['file', 'title', 'streams and endpoints'], rows),
    table(
      ['file', 'what it is'],
      OTHER_CONTRACTS.map(([file, title]) => [link(file), title]),
    ),
  );
}

const PAGES: Record<string, string> = {
  commands: await commands(),
  variables: variables(),
  metrics: metrics(),
  states: states(),
  'failure-codes': failureCodes(),
  contracts: contracts(),
};

mkdirSync(FOLDER, { recursive: true });
for (const [name, text] of Object.entries(PAGES)) {
  const file = path.join(FOLDER, `${name}.md`);
  if (!process.argv.includes('--check')) writeFileSync(file, text);
  else if (text !== readFileSync(file, 'utf8')) {
    console.error(`${path.relative(ROOT, file)} is not up to date: npm run generate`);
    process.exitCode = 1;
  }
}
