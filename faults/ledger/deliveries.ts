/** One entry that Gateway or Mail Service got, read by the reference document alone, and held against its intent. */
import { jsonOf, sameValue } from './comparison.ts';
import { readTable } from './flatbuffers.ts';
import type { SentIntent } from './intent-entries.ts';
import type { Channel } from './notification-types.ts';
import { TYPES, localeOf } from './notification-types.ts';

/** An entry of an outbound stream, as a consumer read it. */
export interface Sighting {
  channel: Channel;
  entryId: string;
  fields: readonly (readonly [name: string, value: Buffer])[];
  /** Milliseconds since the epoch. */
  seenAt: number;
}

/** Whom the world knows. */
export interface World {
  users: ReadonlyMap<string, { email: string; preferredLanguage: string }>;
  /** Addresses of administrators, the same for each type. */
  admins: readonly string[];
}

export interface Delivery {
  /** `event_id` or `delivery_id`, by which consumers tell a repeat. */
  id: string;
  notificationId: string;
  /** `user:<id>` or `email:<address>`. */
  recipientRef: string;
  sighting: Sighting;
  /** The texts of the entry, by field. */
  values: ReadonlyMap<string, string>;
  /** What the recipient is told: of an e-mail the variables, of a push the fields of its table. */
  told: Record<string, unknown>;
}

const ID_FIELDS: Record<Channel, string> = { push: 'event_id', email: 'delivery_id' };
const ID = /^(\d+-\d+)\/(push|email):((?:user|email|config):.+)$/s;
/** Of the clocks of this machine, and of what PostgreSQL rounds. */
const CLOCK_MS = 1_000;
const DIGEST_FIELDS = ['items', 'items_omitted'];

/** When its stream took an entry, ms since the epoch by the clock of Redis. */
export const takenAt = ({ sighting }: Delivery): number => Number(sighting.entryId.split('-')[0]);

/** @returns a text with the reason for an entry that cannot be read. */
export function readDelivery(sighting: Sighting): Delivery | string {
  const values = new Map(sighting.fields.map(([name, value]) => [name, value.toString('utf8')]));
  if (values.size !== sighting.fields.length) return 'an entry with a field twice';
  const id = values.get(ID_FIELDS[sighting.channel]) ?? '';
  const [, notificationId = '', channel, recipientRef = ''] = ID.exec(id) ?? [];
  if (channel !== sighting.channel)
    return `an entry of ${sighting.channel} with the id ${JSON.stringify(id)}`;
  const told = toldIn(sighting, values);
  if (typeof told === 'string') return `${id}: ${told}`;
  return { id, notificationId, recipientRef, sighting, values, told };
}

function toldIn({ channel, fields }: Sighting, values: ReadonlyMap<string, string>) {
  if (channel === 'email') {
    const payload = jsonOf(values.get('payload_json')) as { variables?: Record<string, unknown> } | undefined;
    return payload?.variables ?? 'a command without variables';
  }
  const layout = TYPES[values.get('event_type') ?? '']?.push;
  if (!layout) return `${values.get('event_type')} has no push`;
  try {
    return readTable(fields.find(([name]) => name === 'payload_bytes')![1], layout);
  } catch (error) {
    return `payload_bytes: ${(error as Error).message}`;
  }
}

export interface Charges {
  misdirected: string[];
  altered: string[];
}

/** Holds what arrived against what was sent, field by field. */
export function compare(
  { id, recipientRef, notificationId, sighting, values, told }: Delivery,
  sent: SentIntent,
  { world, postedAt }: { world: World; postedAt: number },
): Charges {
  const charges: Charges = { misdirected: [], altered: [] };
  const { channel } = sighting;
  const expected = new Map<string, string>(commonFields(sent));
  // What a digest adds is held against its window.
  const digest: Record<string, unknown> = {};
  if (TYPES[sent.type]!.collapse === 'digest') {
    if (values.has('item_count')) expected.set('item_count', values.get('item_count')!);
    for (const name of DIGEST_FIELDS) if (name in told) digest[name] = told[name];
  }
  if (!recipientsOf(sent, world).includes(recipientRef))
    charges.misdirected.push(`${id} is not for ${recipientRef}`);

  if (channel === 'push') {
    expected.set('event_type', sent.type).set('event_id', id);
    expected.set('user_id', recipientRef.replace(/^user:/, ''));
    // Compared as what it says.
    expected.set('payload_bytes', values.get('payload_bytes') ?? '');
    const layout = TYPES[sent.type]!.push ?? [];
    const due = Object.fromEntries(
      layout.map(([name, kind]) => {
        const value = sent.payload[name];
        return [name, kind === 'long' ? BigInt(value as number) : value];
      }),
    );
    if (!sameValue(told, due)) charges.altered.push(`${id}: the push says other things than its intent`);
  } else {
    expected.set('delivery_id', id).set('source', 'notification').set('payload_mode', 'template');
    expected.set('idempotency_key', `notification:${notificationId}/email:${recipientRef}`);
    const requestedAt = Number(values.get('requested_at_ms'));
    if (!(requestedAt >= postedAt - CLOCK_MS && requestedAt <= sighting.seenAt + CLOCK_MS))
      charges.altered.push(`${id}: requested_at_ms is ${values.get('requested_at_ms')}`);
    expected.set('requested_at_ms', values.get('requested_at_ms') ?? '');
    expected.set('payload_json', values.get('payload_json') ?? '');
    const payload = jsonOf(values.get('payload_json')) as { to?: unknown } & Record<string, unknown>;
    const due = mailOf(sent, recipientRef, world, digest);
    if (!sameValue(payload.to, due.to)) charges.misdirected.push(`${id} goes to another address`);
    else if (!sameValue(payload, due))
      charges.altered.push(`${id}: the command says other things than its intent`);
  }
  for (const name of new Set([...expected.keys(), ...values.keys()])) {
    if (values.get(name) === expected.get(name)) continue;
    const charge = name === 'user_id' ? charges.misdirected : charges.altered;
    charge.push(`${id}: ${name} is ${values.get(name) ?? 'missing'}, not ${expected.get(name) ?? 'absent'}`);
  }
  return charges;
}

function* commonFields({ requestId, traceId }: SentIntent): Generator<[string, string]> {
  if (requestId !== undefined) yield ['request_id', requestId];
  if (traceId !== undefined) yield ['trace_id', traceId];
}

/** `recipient_ref` of everybody whom an intent is for. */
export function recipientsOf({ audience, recipients }: SentIntent, { admins }: World): string[] {
  return audience === 'user' ? recipients.map((id) => `user:${id}`) : admins.map((to) => `email:${to}`);
}

function mailOf(sent: SentIntent, recipientRef: string, { users }: World, digest: object) {
  const user = users.get(recipientRef.replace(/^user:/, ''));
  const [to, locale] =
    sent.audience === 'user'
      ? [user?.email, localeOf(user?.preferredLanguage ?? '')]
      : [recipientRef.replace(/^email:/, ''), localeOf('')];
  const none: never[] = [];
  return {
    to: [to],
    cc: none,
    bcc: none,
    reply_to: none,
    attachments: none,
    template_id: sent.type,
    locale,
    variables: { ...sent.payload, ...digest },
  };
}
