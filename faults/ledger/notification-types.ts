/**
 * The notification types as the reference document of the service has them ("Notification Catalog", "Push Contract
 * Toward Gateway"), written down a second time on purpose: a mistake in the product's own catalog must not judge itself.
 */
import type { TableLayout } from './flatbuffers.ts';

export type Audience = 'user' | 'admin_email';
export type Channel = 'push' | 'email';
export const CHANNELS: readonly Channel[] = ['push', 'email'];

export interface NotificationTypeRow {
  producer: string;
  channels: Partial<Record<Audience, readonly Channel[]>>;
  /** Required fields of the payload. */
  payload: readonly string[];
  /** Layout of its FlatBuffers table. */
  push?: TableLayout;
  /** How many a run lets through to one recipient: the catalog of a run has that of Galaxy with these. */
  throttle?: number;
  /** Of each recipient's window, a run delivers the newest, or a digest of all. */
  collapse?: 'newest' | 'digest';
}

/** Of types with `collapse`, ms. */
export const WINDOW_MS = 20_000;

const both = ['push', 'email'] as const;
const mail = ['email'] as const;
const game = ['game_id', 'game_name'] as const;
const runtime = ['game_id', 'image_ref', 'error_code', 'error_message', 'attempted_at_ms'] as const;
const text = (name: string) => [name, 'string'] as const;
const long = (name: string) => [name, 'long'] as const;

export const TYPES: Readonly<Record<string, NotificationTypeRow>> = {
  'geo.review_recommended': {
    producer: 'geoprofile',
    channels: { admin_email: mail },
    payload: ['user_id', 'user_email', 'observed_country', 'usual_connection_country', 'review_reason'],
  },
  'game.turn.ready': {
    producer: 'game_master',
    channels: { user: both },
    payload: [...game, 'turn_number'],
    push: [text('game_id'), long('turn_number')],
  },
  'game.finished': {
    producer: 'game_master',
    channels: { user: both },
    throttle: 3,
    payload: [...game, 'final_turn_number'],
    push: [text('game_id'), long('final_turn_number')],
  },
  'game.generation_failed': {
    producer: 'game_master',
    channels: { admin_email: mail },
    payload: [...game, 'failure_reason'],
  },
  'lobby.runtime_paused_after_start': {
    producer: 'game_lobby',
    channels: { admin_email: mail },
    payload: game,
  },
  'lobby.application.submitted': {
    producer: 'game_lobby',
    channels: { user: both, admin_email: mail },
    payload: [...game, 'applicant_user_id', 'applicant_name'],
    push: [text('game_id'), text('applicant_user_id')],
  },
  'lobby.membership.approved': {
    producer: 'game_lobby',
    channels: { user: both },
    collapse: 'newest',
    payload: game,
    push: [text('game_id')],
  },
  'lobby.membership.rejected': {
    producer: 'game_lobby',
    channels: { user: both },
    collapse: 'digest',
    payload: game,
    push: [text('game_id')],
  },
  'lobby.membership.blocked': {
    producer: 'game_lobby',
    channels: { user: both },
    payload: [...game, 'membership_user_id', 'membership_user_name', 'reason'],
    push: [text('game_id'), text('membership_user_id'), text('reason')],
  },
  'lobby.invite.created': {
    producer: 'game_lobby',
    channels: { user: both },
    payload: [...game, 'inviter_user_id', 'inviter_name'],
    push: [text('game_id'), text('inviter_user_id')],
  },
  'lobby.invite.redeemed': {
    producer: 'game_lobby',
    channels: { user: both },
    payload: [...game, 'invitee_user_id', 'invitee_name'],
    push: [text('game_id'), text('invitee_user_id')],
  },
  'lobby.invite.expired': {
    producer: 'game_lobby',
    channels: { user: mail },
    throttle: 3,
    payload: [...game, 'invitee_user_id', 'invitee_name'],
  },
  'lobby.race_name.registration_eligible': {
    producer: 'game_lobby',
    channels: { user: both },
    payload: [...game, 'race_name', 'eligible_until_ms'],
    push: [text('game_id'), text('race_name'), long('eligible_until_ms')],
  },
  'lobby.race_name.registered': {
    producer: 'game_lobby',
    channels: { user: both },
    payload: ['race_name'],
    push: [text('race_name')],
  },
  'lobby.race_name.registration_denied': {
    producer: 'game_lobby',
    channels: { user: mail },
    throttle: 3,
    payload: [...game, 'race_name', 'reason'],
  },
  'runtime.image_pull_failed': {
    producer: 'runtime_manager',
    channels: { admin_email: mail },
    payload: runtime,
  },
  'runtime.container_start_failed': {
    producer: 'runtime_manager',
    channels: { admin_email: mail },
    payload: runtime,
  },
  'runtime.start_config_invalid': {
    producer: 'runtime_manager',
    channels: { admin_email: mail },
    payload: runtime,
  },
};

/** Locales that Mail Service has templates for; whatever else a user prefers becomes the first. */
const LOCALES = ['en'];
export const localeOf = (preferred: string): string =>
  LOCALES.find((locale) => locale === preferred) ?? LOCALES[0]!;

/**
 * A payload of a type. `mark` makes its ids and names unique, so that the recipient on each channel can tell its intent.
 */
export function payloadOf(type: string, mark: string, number: number): Record<string, unknown> {
  const valueOf = (field: string): unknown => {
    if (field.endsWith('_ms')) return 1_900_000_000_000 + number;
    if (field.endsWith('turn_number')) return number;
    if (field === 'user_email') return `${mark}@players.example.com`;
    return `${field} ${mark} «Ünïcode» ☄`;
  };
  return Object.fromEntries(TYPES[type]!.payload.map((field) => [field, valueOf(field)]));
}
