/**
 * The notification catalog: one row per notification type. Validation, the wire contracts, the producer module, the
 * FlatBuffers encoder and the templates' check all derive from this table; nothing about a type is written down a
 * second time.
 */
import { z } from 'zod';

/** The two delivery channels of v1. */
export const CHANNELS = ['push', 'email'] as const;
export type Channel = (typeof CHANNELS)[number];

/** Who an intent is addressed to: users named by the producer, or administrators named by configuration. */
export const AUDIENCE_KINDS = ['user', 'admin_email'] as const;
export type AudienceKind = (typeof AUDIENCE_KINDS)[number];

/** Upstream services that may publish intents. */
export const PRODUCERS = ['geoprofile', 'game_master', 'game_lobby', 'runtime_manager'] as const;
export type Producer = (typeof PRODUCERS)[number];

/**
 * Characters that end a line or reverse the direction of what follows: with them a name in the subject of an e-mail
 * becomes a header of it, or shows as another name.
 */
const ACTS_ON_LINE = /[^\P{Cc}\t]|[\u2028\u2029]|[^\P{Bidi_C}\u2066-\u2069]/u;
/** The same, but for line breaks. */
const ACTS_ON_TEXT = /[^\P{Cc}\t\n\r]|[^\P{Bidi_C}\u2066-\u2069]/u;

/** Programs put an isolate around a name of another direction: what stands behind its end is untouched. */
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
/** One line: templates put such fields into subjects. */
const text = textWithout(ACTS_ON_LINE);
/** What a program reports, which may have several lines. For the text of an e-mail only. */
const lines = textWithout(ACTS_ON_TEXT);
const count = z.int().nonnegative();
const timestampMs = z.int().positive();

/** The kinds of payload fields by name: clients in other languages are generated from them. */
const FIELD_KINDS = { text, lines, count, time: timestampMs } as const;
export type FieldKind = keyof typeof FIELD_KINDS;

const game = { game_id: text, game_name: text };
const runtimeFailure = {
  game_id: text,
  image_ref: text,
  error_code: text,
  error_message: lines,
  attempted_at_ms: timestampMs,
};

interface CatalogRow {
  readonly producer: Producer;
  /** Channels by audience: an audience that is not a key is not accepted for the type. */
  readonly channels: Partial<Record<AudienceKind, readonly Channel[]>>;
  /** Required payload fields. Unknown further fields pass through untouched. */
  readonly payload: z.ZodRawShape;
  /** The table of `notification.fbs` and the payload fields it carries; absent for types without push. */
  readonly push?: { readonly table: string; readonly fields: readonly string[] };
  /** How long after the event it is worth sending, ms, where the intent does not say it; absent: for ever. */
  readonly expiresAfterMs?: number;
  /** `urgent`: it goes before all that waits and is not; absent: it comes in its turn. */
  readonly priority?: 'urgent';
}

const pushAndEmail = { user: ['push', 'email'] } as const;
const userEmail = { user: ['email'] } as const;
const adminEmail = { admin_email: ['email'] } as const;

export const CATALOG = {
  'geo.review_recommended': {
    producer: 'geoprofile',
    channels: adminEmail,
    payload: {
      user_id: text,
      user_email: text,
      observed_country: text,
      usual_connection_country: text,
      review_reason: lines,
    },
  },
  'game.turn.ready': {
    producer: 'game_master',
    channels: pushAndEmail,
    payload: { ...game, turn_number: count },
    push: { table: 'GameTurnReadyEvent', fields: ['game_id', 'turn_number'] },
  },
  'game.finished': {
    producer: 'game_master',
    channels: pushAndEmail,
    payload: { ...game, final_turn_number: count },
    push: { table: 'GameFinishedEvent', fields: ['game_id', 'final_turn_number'] },
  },
  'game.generation_failed': {
    producer: 'game_master',
    channels: adminEmail,
    payload: { ...game, failure_reason: lines },
    priority: 'urgent',
  },
  'lobby.runtime_paused_after_start': {
    producer: 'game_lobby',
    channels: adminEmail,
    payload: game,
    priority: 'urgent',
  },
  'lobby.application.submitted': {
    producer: 'game_lobby',
    channels: { ...pushAndEmail, ...adminEmail },
    payload: { ...game, applicant_user_id: text, applicant_name: text },
    push: { table: 'LobbyApplicationSubmittedEvent', fields: ['game_id', 'applicant_user_id'] },
  },
  'lobby.membership.approved': {
    producer: 'game_lobby',
    channels: pushAndEmail,
    payload: game,
    push: { table: 'LobbyMembershipApprovedEvent', fields: ['game_id'] },
  },
  'lobby.membership.rejected': {
    producer: 'game_lobby',
    channels: pushAndEmail,
    payload: game,
    push: { table: 'LobbyMembershipRejectedEvent', fields: ['game_id'] },
  },
  'lobby.membership.blocked': {
    producer: 'game_lobby',
    channels: pushAndEmail,
    payload: { ...game, membership_user_id: text, membership_user_name: text, reason: lines },
    push: { table: 'LobbyMembershipBlockedEvent', fields: ['game_id', 'membership_user_id', 'reason'] },
  },
  'lobby.invite.created': {
    producer: 'game_lobby',
    channels: pushAndEmail,
    payload: { ...game, inviter_user_id: text, inviter_name: text },
    push: { table: 'LobbyInviteCreatedEvent', fields: ['game_id', 'inviter_user_id'] },
  },
  'lobby.invite.redeemed': {
    producer: 'game_lobby',
    channels: pushAndEmail,
    payload: { ...game, invitee_user_id: text, invitee_name: text },
    push: { table: 'LobbyInviteRedeemedEvent', fields: ['game_id', 'invitee_user_id'] },
  },
  'lobby.invite.expired': {
    producer: 'game_lobby',
    channels: userEmail,
    payload: { ...game, invitee_user_id: text, invitee_name: text },
  },
  'lobby.race_name.registration_eligible': {
    producer: 'game_lobby',
    channels: pushAndEmail,
    payload: { ...game, race_name: text, eligible_until_ms: timestampMs },
    push: {
      table: 'LobbyRaceNameRegistrationEligibleEvent',
      fields: ['game_id', 'race_name', 'eligible_until_ms'],
    },
  },
  'lobby.race_name.registered': {
    producer: 'game_lobby',
    channels: pushAndEmail,
    payload: { race_name: text },
    push: { table: 'LobbyRaceNameRegisteredEvent', fields: ['race_name'] },
  },
  'lobby.race_name.registration_denied': {
    producer: 'game_lobby',
    channels: userEmail,
    payload: { ...game, race_name: text, reason: lines },
  },
  'runtime.image_pull_failed': {
    producer: 'runtime_manager',
    channels: adminEmail,
    payload: runtimeFailure,
    priority: 'urgent',
  },
  'runtime.container_start_failed': {
    producer: 'runtime_manager',
    channels: adminEmail,
    payload: runtimeFailure,
    priority: 'urgent',
  },
  'runtime.start_config_invalid': {
    producer: 'runtime_manager',
    channels: adminEmail,
    payload: runtimeFailure,
    priority: 'urgent',
  },
} as const satisfies Record<string, CatalogRow>;

export type Catalog = typeof CATALOG;
export type NotificationType = keyof Catalog;

/** The types that reach administrators, and so have a `NOTIFICATION_ADMIN_EMAILS_*` variable each. */
export type AdminNotificationType = {
  [T in NotificationType]: 'admin_email' extends keyof Catalog[T]['channels'] ? T : never;
}[NotificationType];

/** The types that have a push event. */
export type PushNotificationType = {
  [T in NotificationType]: Catalog[T] extends { push: unknown } ? T : never;
}[NotificationType];

/** The payload a producer must supply for a type; further fields are allowed and passed through. */
export type PayloadOf<T extends NotificationType> = z.infer<z.ZodObject<Catalog[T]['payload']>>;

export const NOTIFICATION_TYPES = Object.keys(CATALOG) as NotificationType[];

export const ADMIN_NOTIFICATION_TYPES = NOTIFICATION_TYPES.filter(
  (type): type is AdminNotificationType => 'admin_email' in CATALOG[type].channels,
);

export const PUSH_NOTIFICATION_TYPES = NOTIFICATION_TYPES.filter(
  (type): type is PushNotificationType => 'push' in CATALOG[type],
);

/** The types that go before all that waits. */
export const URGENT_TYPES: readonly NotificationType[] = NOTIFICATION_TYPES.filter(
  (type) => 'priority' in CATALOG[type],
);

export const isUrgentType = (type: NotificationType): boolean => URGENT_TYPES.includes(type);

export function isNotificationType(value: string): value is NotificationType {
  return Object.hasOwn(CATALOG, value);
}

/** The audiences a type accepts. */
export function audiencesOf(type: NotificationType): AudienceKind[] {
  return AUDIENCE_KINDS.filter((audience) => audience in CATALOG[type].channels);
}

/** The channels on which a type is delivered to an audience; empty when the type does not accept the audience. */
export function channelsOf(type: NotificationType, audience: AudienceKind): readonly Channel[] {
  const row: CatalogRow = CATALOG[type];
  return row.channels[audience] ?? [];
}

/** From when on an intent is not worth sending any more, epoch ms: as it says, or as its type does; undefined: never. */
export function expiryOf(
  { notificationType, occurredAtMs, expiresAtMs }: { notificationType: NotificationType } & Expiring,
  catalog: Readonly<Record<NotificationType, CatalogRow>> = CATALOG,
): number | undefined {
  const { expiresAfterMs } = catalog[notificationType];
  return expiresAtMs ?? (expiresAfterMs === undefined ? undefined : occurredAtMs + expiresAfterMs);
}

interface Expiring {
  occurredAtMs: number;
  expiresAtMs?: number;
}

/** Name and kind of a type's required payload fields, in the order in which they are checked. */
export function payloadFieldsOf(type: NotificationType): [name: string, kind: FieldKind][] {
  const kinds = Object.entries(FIELD_KINDS) as [FieldKind, unknown][];
  return Object.entries(CATALOG[type].payload).map(([name, schema]) => {
    const kind = kinds.find(([, own]) => own === schema);
    if (kind === undefined) throw new TypeError(`${type}: the kind of ${name} has no name`);
    return [name, kind[0]];
  });
}

/** One schema per type, built once: schemas are costly to build and cheap to run. */
export const PAYLOAD_SCHEMAS = Object.fromEntries(
  NOTIFICATION_TYPES.map((type) => [type, z.looseObject(CATALOG[type].payload)]),
) as unknown as Record<NotificationType, z.ZodObject>;
