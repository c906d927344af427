/** Search attributes of the intent workflows, in the form that starts and upserts take. */
import type { RouteKey } from './contract.ts';
import { SEARCH_ATTRIBUTES } from './contract.ts';

type KeywordKey = { name: string; type: 'KEYWORD' };
type KeywordPair = { key: KeywordKey; value: string };

const keyOf = (name: string): KeywordKey => ({ name, type: 'KEYWORD' });
const keyword = (name: string, value: string): KeywordPair => ({ key: keyOf(name), value });

/** What a notification is found by; its batches and routes inherit it. */
export interface NotificationKeys {
  notificationId: string;
  notificationType: string;
  producer: string;
  /** Printable and short: see `searchableKey` in api/ids.ts. */
  idempotencyKey: string;
}

export function notificationAttributes(keys: NotificationKeys): KeywordPair[] {
  return [
    keyword(SEARCH_ATTRIBUTES.notificationId, keys.notificationId),
    keyword(SEARCH_ATTRIBUTES.notificationType, keys.notificationType),
    keyword(SEARCH_ATTRIBUTES.producer, keys.producer),
    keyword(SEARCH_ATTRIBUTES.idempotencyKey, keys.idempotencyKey),
  ];
}

const INHERITED = [
  SEARCH_ATTRIBUTES.notificationId,
  SEARCH_ATTRIBUTES.notificationType,
  SEARCH_ATTRIBUTES.producer,
  SEARCH_ATTRIBUTES.idempotencyKey,
];

/** The attributes that a child takes over from its parent: ours only, never those that the server maintains. */
export function inheritedAttributes(parent: { get(key: KeywordKey): string | undefined }): KeywordPair[] {
  return INHERITED.flatMap((name) => {
    const value = parent.get(keyOf(name));
    return value === undefined ? [] : [keyword(name, value)];
  });
}

export const routeChannel = (channel: string): KeywordPair =>
  keyword(SEARCH_ATTRIBUTES.routeChannel, channel);
/** What is known about a route that nobody but its own input describes. */
export const attributesOf = ({ notificationId, routeRef }: RouteKey): KeywordPair[] => [
  keyword(SEARCH_ATTRIBUTES.notificationId, notificationId),
  routeChannel(routeRef.slice(0, routeRef.indexOf(':'))),
];
export const routeStatus = (status: string): KeywordPair => keyword(SEARCH_ATTRIBUTES.routeStatus, status);
