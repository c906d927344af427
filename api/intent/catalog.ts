/**
 * The notification catalog: which types there are, who may publish them, whom they reach on which channels, and what their
 * payload holds. It is data that an installation brings (`NOTIFICATION_CATALOG_FILE`); validation, push events, metrics,
 * commands and the clients derive from it, and nothing about a type is written down a second time.
 */
import { z } from 'zod';
import { DURATION_FORMS, durationMs, nearestOf } from '../text.ts';
import { given } from '../given.ts';

/** The two delivery channels of v1. */
export const CHANNELS = ['push', 'email'] as const;
export type Channel = (typeof CHANNELS)[number];

/** Who an intent is addressed to: users named by the producer, or administrators named by configuration. */
export const AUDIENCE_KINDS = ['user', 'admin_email'] as const;
export type AudienceKind = (typeof AUDIENCE_KINDS)[number];

/** A name of the catalog, such as `game.turn.ready`. */
export type NotificationType = string;
/** An upstream service that publishes intents, such as `game_master`. */
export type Producer = string;

/**
 * Characters that end a line or reverse the direction of what follows: with them a name in the subject of an e-mail
 * becomes a header of it, or shows as another name.
 */
const ACTS_ON_LINE = /[^\P{Cc}\t]|[\u2028\u2029]|[^\P{Bidi_C}\u2066-\u2069]/u;
/** The same, but for line breaks. */
const ACTS_ON_TEXT = /[^\P{Cc}\t\n\r]|[^\P{Bidi_C}\u2066-\u2069]/u;

/** Programs put an isolate around a name of another direction; it leaves the text behind its end as it is. */
function areIsolatesClosed(value: string): boolean {
  let open = 0;
  for (const character of value.match(/[\u2066-\u2069]/g) ?? []) {
    open += character === '\u2069' ? -1 : 1;
    if (open < 0) return false;
  }
  return open === 0;
}

const textWithout = (acting: RegExp) =>
  z
    .string()
    .refine((value) => value.trim() !== '', 'must not be blank')
    .refine((value) => !acting.test(value), 'must have no control or bidi characters')
    .refine(areIsolatesClosed, 'must close each bidi isolate');

/** `line`: templates put such fields into subjects. `text`: several lines, for the text of an e-mail only. */
const TEXT_FORMATS = { line: textWithout(ACTS_ON_LINE), text: textWithout(ACTS_ON_TEXT) };

const note = { description: z.string().optional() };
const length = z.int().nonnegative().optional();

/** The part of JSON Schema that a payload's field may use. Clients in three languages check the same. */
const fieldForms = z.discriminatedUnion('type', [
  z.strictObject({
    type: z.literal('string'),
    format: z.enum(['line', 'text']).optional(),
    minLength: length,
    maxLength: length,
    enum: z.array(z.string()).min(1).optional(),
    ...note,
  }),
  z.strictObject({
    type: z.literal('integer'),
    format: z.literal('unix-ms').optional(),
    minimum: z.int().optional(),
    maximum: z.int().optional(),
    ...note,
  }),
  z.strictObject({ type: z.literal('boolean'), ...note }),
]);
export type PayloadField = z.infer<typeof fieldForms>;

const fieldSchema = fieldForms.superRefine((field, context) => {
  const { least, most } = rangeOf(field);
  if (least > most) context.addIssue(`nothing is between ${least} and ${most}`);
  if (field.type !== 'string' || field.enum === undefined) return;
  // The values of an enum are the whole rule: clients in other languages would apply the limits as well.
  for (const limit of ['format', 'minLength', 'maxLength'] as const)
    if (field[limit] !== undefined)
      context.addIssue({ code: 'custom', path: [limit], message: 'does not go together with enum' });
});

const DOTTED = /^[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)*$/;
const typeName = z.string().max(100).regex(DOTTED, 'must be lower-case words with dots and underscores');
/** Of a producer, or of a field of a payload. */
const wordsName = z
  .string()
  .max(60)
  .regex(/^[a-z][a-z0-9_]*$/, 'must be lower-case words with underscores');
const duration = z.string().transform((text, context): number => {
  const ms = durationMs(text);
  if (ms !== undefined) return ms;
  context.addIssue(`must be a duration ${DURATION_FORMS}`);
  return z.NEVER;
});
const MOST_THROTTLED_MS = 31 * 86_400_000;
/** How many notifications of a type reach a recipient in any span of the window, of all or with one value of a field. */
const throttleSchema = z
  .strictObject({
    // One row holds the time of each that passed.
    limit: z.int().min(1).max(100),
    window: z.string().refine((text) => {
      const ms = durationMs(text);
      return ms !== undefined && ms >= 1_000 && ms <= MOST_THROTTLED_MS;
    }, `must be a duration ${DURATION_FORMS}, from 1s to 31d`),
    per: z.union(
      [z.tuple([z.literal('recipient')]), z.tuple([z.literal('recipient'), wordsName])],
      'must be [recipient], or [recipient, <field of the payload>]',
    ),
  })
  .transform(({ limit, window, per: [, field] }) => {
    const summary = `at most ${limit} in ${window} reach a recipient${field ? ` with the same ${field}` : ''}`;
    return given({ limit, windowMs: durationMs(window)!, field, summary });
  });
const channels = z
  .array(z.enum(CHANNELS))
  .min(1)
  .refine((names) => new Set(names).size === names.length, 'must name each channel once');

/** A window is a backlog of intents that wait, so it ends. */
const MAX_WINDOW_MS = 7 * 86_400_000;
/** What a digest adds to the newest payload. */
const DIGEST_FIELDS = ['items', 'items_omitted'];

/** Within a window, the newest intent alone reaches a recipient, or a digest of the newest ones. */
const collapseSchema = z
  .strictObject({
    // Each recipient has a window for each of their values.
    key: z.union([z.string(), z.array(z.string())], 'must be a field of the payload, or a list of them'),
    // Counted from the intent that opens it.
    window: duration.refine((ms) => ms > 0 && ms <= MAX_WINDOW_MS, 'must be more than 0 and at most 7d'),
    // Its bounds. The newest payload is always in it. It is copied for each recipient.
    digest: z.strictObject({ items: z.int().min(1).max(100), bytes: z.int().min(1).max(32_768) }).optional(),
  })
  .transform(({ key, window, ...rest }) => ({ ...rest, key: [key].flat(), windowMs: window }));

const rowForm = z.strictObject({
  summary: z.string().optional(),
  producer: wordsName,
  audiences: z
    .strictObject({
      user: channels.optional(),
      admin_email: z.tuple([z.literal('email')], 'must be [email]: administrators have no push').optional(),
    })
    .refine((audiences) => Object.values(audiences).some(Boolean), 'must name an audience'),
  payload: z.strictObject({
    type: z.literal('object'),
    required: z.array(z.string()).default([]),
    properties: z.record(wordsName, fieldSchema),
    ...note,
  }),
  push: z
    .strictObject({
      encoding: z.enum(['flatbuffers', 'json']).default('flatbuffers'),
      table: z
        .string()
        .regex(/^[A-Z][A-Za-z0-9]*$/, 'must be a name such as OrderShippedEvent')
        .optional(),
      fields: z.array(z.string()).min(1),
    })
    .optional(),
  email: z.strictObject({ template_id: z.string().min(1).max(200) }).optional(),
  priority: z.enum(['normal', 'urgent']).default('normal'),
  expires_after: duration.optional(),
  collapse: collapseSchema.optional(),
  throttle: throttleSchema.optional(),
  retired: z.boolean().default(false),
  example: z.record(z.string(), z.unknown()).optional(),
});

type Row = z.output<typeof rowForm>;

const catalogSchema = z.strictObject({
  version: z.literal(1),
  types: z
    .record(typeName, rowForm.superRefine(reportContradictions))
    .refine((types) => Object.keys(types).length > 0, 'must have a type')
    .superRefine(reportClashes),
});

/** A catalog as a file has it. */
export type CatalogDocument = z.input<typeof catalogSchema>;

/** One notification type. */
export interface TypeSpec {
  readonly type: NotificationType;
  /** What has happened, and the audience that hears of it. */
  readonly summary: string;
  readonly producer: Producer;
  /** Those that it accepts, in the order of {@link AUDIENCE_KINDS}. */
  readonly audiences: readonly AudienceKind[];
  /** On which channels it is delivered; none to an audience that it does not accept. */
  readonly channels: Readonly<Record<AudienceKind, readonly Channel[]>>;
  /** Payload fields in the order in which they are checked. */
  readonly fields: readonly { name: string; field: PayloadField; isRequired: boolean }[];
  /** Of the payload. Unknown further fields pass through untouched. */
  readonly schema: z.ZodObject;
  readonly push?: PushSpec;
  readonly templateId: string;
  /** It goes before all that waits and is not urgent. */
  readonly isUrgent: boolean;
  /** How long after the event, or after the time of delivery, it is worth sending, ms, where the intent does not say it; absent: for ever. */
  readonly expiresAfterMs?: number;
  readonly collapse?: z.output<typeof collapseSchema>;
  /** How many of it reach one recipient; absent: all. */
  readonly throttle?: z.output<typeof throttleSchema>;
  /** It is refused at the entrance, and delivered if it was accepted before. */
  readonly isRetired: boolean;
  /** A valid payload. */
  readonly example: Readonly<Record<string, unknown>>;
}

/** What a push event carries: fields of the payload, in the order of the slots of its table. */
export interface PushSpec {
  readonly encoding: 'flatbuffers' | 'json';
  /** Of FlatBuffers. */
  readonly table: string;
  readonly fields: readonly { name: string; type: PayloadField['type'] }[];
}

/** All types of an installation. */
export interface Catalog {
  /** In the order of the file. */
  readonly types: ReadonlyMap<NotificationType, TypeSpec>;
  readonly producers: readonly Producer[];
}

/** The catalog is wrong; `problems` has one line for each fault, which begins with its place. */
export class CatalogError extends Error {
  override name = 'CatalogError';
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(`the catalog is wrong:\n${problems.map((problem) => `  ${problem}`).join('\n')}`);
    this.problems = problems;
  }
}

/** @throws CatalogError that names every fault with its place. */
export function catalogOf(document: unknown): Catalog {
  const { data, error } = catalogSchema.safeParse(document, { error: messageOf });
  if (error) {
    throw new CatalogError(
      error.issues.map(({ path, message }) => `${path.join('.') || 'the file'}: ${message}`),
    );
  }
  const rows = Object.entries(data.types);
  const types = new Map(rows.map(([type, row]) => [type, specOf(type, row)]));
  const unfit = [...types.values()].flatMap(({ type, schema, example }) =>
    (schema.safeParse(example).error?.issues ?? []).map(
      ({ path, message }) => `types.${type}.example.${path.join('.')}: ${message}`,
    ),
  );
  if (unfit.length > 0) throw new CatalogError(unfit);
  return { types, producers: [...new Set(rows.map(([, { producer }]) => producer))] };
}

/** Says what to write, where the messages of the library do not. */
const messageOf: z.core.$ZodErrorMap = (issue) => {
  if (issue.input === undefined) return 'is required';
  if (issue.code === 'invalid_key')
    return `the name ${issue.issues.map(({ message }) => message).join(', ')}`;
  if (issue.code === 'invalid_union' && Array.isArray(issue['options']))
    return `must be ${issue['options'].join(' or ')}`;
  if (issue.code !== 'unrecognized_keys') return undefined;
  const known = Object.keys((issue.inst as z.ZodObject).shape);
  const hintOf = (nearest: string | undefined) => (nearest ? `, did you mean ${nearest}?` : '');
  return issue.keys.map((key) => `has no key ${key}${hintOf(nearestOf(key, known))}`).join('; ');
};

/** What is fine alone and wrong together. */
function reportContradictions(row: Row, context: z.core.$RefinementCtx<Row>): void {
  // What is misshapen comes as it is written.
  if (context.issues.length > 0) return;
  const { payload, push, audiences, email, throttle, collapse, expires_after: expiresAfterMs } = row;
  const { properties, required } = payload;
  const report = (place: string, message: string) =>
    context.addIssue({ code: 'custom', path: place.split('.'), message });
  const wantsPush = audiences.user?.includes('push') ?? false;
  const isEmailed = Object.values(audiences).some((names) => names?.some((name) => name === 'email'));
  for (const name of required)
    if (!Object.hasOwn(properties, name)) report('payload.required', `${name} is not among the properties`);
  if (wantsPush && push === undefined) report('push', 'is required by the channel push');
  if (!wantsPush && push !== undefined) report('push', 'no audience has the channel push');
  if (!isEmailed && email !== undefined) report('email', 'no audience has the channel email');
  const named = {
    'push.fields': push?.fields ?? [],
    'throttle.per': throttle?.field === undefined ? [] : [throttle.field],
    'collapse.key': collapse?.key ?? [],
  };
  for (const [place, names] of Object.entries(named)) {
    for (const name of names)
      if (!required.includes(name)) report(place, `${name} must be a required field of the payload`);
    if (new Set(names).size < names.length) report(place, 'each field once');
  }
  for (const name of DIGEST_FIELDS)
    if (collapse?.digest && Object.hasOwn(properties, name))
      report('collapse.digest', `adds ${name} to the payload, which has a field of this name`);
  if (collapse && expiresAfterMs !== undefined && expiresAfterMs <= collapse.windowMs)
    report('collapse.window', 'must be shorter than expires_after');
}

/** The limits of a field: of the number, or of the characters. */
export function rangeOf(field: PayloadField): { least: number; most: number } {
  if (field.type === 'boolean') return { least: -Infinity, most: Infinity };
  const [least = -Infinity, most = Infinity] =
    field.type === 'string' ? [field.minLength, field.maxLength] : [field.minimum, field.maximum];
  return { least, most };
}

/** Types that would get one variable for their administrators, or one table. */
function reportClashes(rows: Record<string, Row>, context: z.core.$RefinementCtx): void {
  const seen = new Map<string, string>();
  for (const [type, { push }] of Object.entries(rows)) {
    const names = [pascalCase(type)];
    if (push?.encoding === 'flatbuffers') names.push(tableOf(type, push.table));
    for (const name of names) {
      const other = seen.get(name);
      seen.set(name, type);
      if (other === undefined) continue;
      context.addIssue({ code: 'custom', path: [type], message: `${name} is the name of ${other} as well` });
    }
  }
}

const tableOf = (type: string, table?: string): string => table ?? `${pascalCase(type)}Event`;

function specOf(type: string, row: Row): TypeSpec {
  const { payload, push, audiences } = row;
  const fields = Object.entries(payload.properties).map(([name, field]) => ({
    ...{ name, field },
    isRequired: payload.required.includes(name),
  }));
  return given({
    type,
    summary: row.summary ?? `${type} of ${row.producer}.`,
    producer: row.producer,
    audiences: AUDIENCE_KINDS.filter((audience) => audiences[audience] !== undefined),
    channels: { user: audiences.user ?? [], admin_email: audiences.admin_email ?? [] },
    fields,
    schema: z.looseObject(
      Object.fromEntries(
        fields.map(({ name, field, isRequired }) => [
          name,
          isRequired ? checkOf(field) : checkOf(field).optional(),
        ]),
      ),
    ),
    push: push && {
      encoding: push.encoding,
      table: tableOf(type, push.table),
      fields: push.fields.map((name) => ({ name, type: payload.properties[name]!.type })),
    },
    templateId: row.email?.template_id ?? type,
    isUrgent: row.priority === 'urgent',
    expiresAfterMs: row.expires_after,
    collapse: row.collapse,
    throttle: row.throttle,
    isRetired: row.retired,
    example: row.example ?? exampleOf(fields),
  });
}

function checkOf(field: PayloadField): z.ZodType {
  switch (field.type) {
    case 'boolean':
      return z.boolean();
    case 'integer': {
      let check = z.int();
      if (field.minimum !== undefined) check = check.min(field.minimum);
      if (field.maximum !== undefined) check = check.max(field.maximum);
      return check;
    }
    case 'string': {
      if (field.enum !== undefined) return z.enum(field.enum);
      const { least, most } = rangeOf(field);
      const check = field.format === undefined ? z.string() : TEXT_FORMATS[field.format];
      return check
        .refine((text) => lengthOf(text) >= least, `must have at least ${least} characters`)
        .refine((text) => lengthOf(text) <= most, `must have at most ${most} characters`);
    }
  }
}

/** In characters, as JSON Schema and the clients count, not in units of UTF-16. */
const lengthOf = (text: string): number => [...text].length;

/** A payload for those who give no example. */
function exampleOf(fields: TypeSpec['fields']): Record<string, unknown> {
  return Object.fromEntries<unknown>(
    fields
      .filter(({ isRequired }) => isRequired)
      .map(({ name, field }) => {
        switch (field.type) {
          case 'boolean':
            return [name, true];
          case 'integer': {
            const { least, most } = rangeOf(field);
            return [
              name,
              Math.min(Math.max(field.format === 'unix-ms' ? 1_790_000_000_000 : 1, least), most),
            ];
          }
          case 'string':
            return [
              name,
              field.enum?.[0] ?? name.slice(0, field.maxLength).padEnd(field.minLength ?? 0, 'x'),
            ];
        }
      }),
  );
}

/** `game.turn.ready` and `turn_number` as `GameTurnReady` and `TurnNumber`. */
export const pascalCase = (name: string): string =>
  name.replaceAll(/(?:^|[._])(\w)/g, (_, initial: string) => initial.toUpperCase());

/** @throws TypeError for a type that the catalog does not have. */
export function typeIn({ types }: Catalog, type: NotificationType): TypeSpec {
  const spec = types.get(type);
  if (spec === undefined) throw new TypeError(`${type} is not in the catalog`);
  return spec;
}

/** Types with the audience `admin_email`, whose administrators a variable names. */
export const adminTypesOf = ({ types }: Catalog): TypeSpec[] =>
  [...types.values()].filter(({ audiences }) => audiences.includes('admin_email'));

/** The channels on which a type is delivered to an audience; none of a type that is not in the catalog. */
export const channelsOf = (
  { types }: Catalog,
  type: NotificationType,
  audience: AudienceKind,
): readonly Channel[] => types.get(type)?.channels[audience] ?? [];

export const isUrgentType = ({ types }: Catalog, type: NotificationType): boolean =>
  types.get(type)?.isUrgent ?? false;
