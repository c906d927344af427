/**
 * What operators find workflows by in Temporal: its search attributes. They cannot be blanked before a workflow is deleted, and no
 * key seals them. So they hold ids, hashes of what may be an address, and codes, and no free text. Pure.
 */
import type { ContinueAsNewOptions } from '@temporalio/workflow';

type SearchAttributePair = Extract<
  NonNullable<ContinueAsNewOptions['typedSearchAttributes']>,
  unknown[]
>[number];

/** Name and type as servers call them. SQL visibility stores have room for ten of type Keyword, and for three of each other type. */
export type SearchAttributes = Readonly<Record<string, 'Keyword' | 'KeywordList' | 'Int'>>;

/** Those of all kinds of work. Every process sees to them, whatever its roles are. */
export const SEARCH_ATTRIBUTES = {
  NotificationId: 'Keyword',
  NotificationType: 'Keyword',
  Producer: 'Keyword',
  IdempotencyKey: 'Keyword',
  RouteChannel: 'Keyword',
  /** Set once a route leaves the happy path. */
  RouteStatus: 'Keyword',
  /** Set once a mobile push leaves the happy path. */
  MobileStatus: 'Keyword',
  /** Why the last attempt failed, of a route, a dead letter or a mobile push. */
  FailureClassification: 'Keyword',
  /** Recipients, as `searchableKey` of api/ids.ts gives them; absent when there are too many. */
  UserId: 'KeywordList',
  /** Routes of a notification that died, when it ended. A later replay leaves the number: dead letters say what is left. */
  DeadRoutes: 'Int',
} as const satisfies SearchAttributes;

/** A server takes values of 2 KB. */
const MAX_LIST_BYTES = 1_900;

const keyOf = (name: keyof typeof SEARCH_ATTRIBUTES) => ({ name, type: 'KEYWORD' }) as const;
export const keyword = (name: keyof typeof SEARCH_ATTRIBUTES, value: string): SearchAttributePair => ({
  key: keyOf(name),
  value,
});

/** What a notification is found by; its routes inherit it. The idempotency key is as `searchableKey` gives it. */
const INHERITED = {
  notificationId: 'NotificationId',
  notificationType: 'NotificationType',
  producer: 'Producer',
  idempotencyKey: 'IdempotencyKey',
} as const;
type NotificationKey = keyof typeof INHERITED;
export type NotificationKeys = Record<NotificationKey, string>;

const notificationKeys = Object.entries(INHERITED) as [
  NotificationKey,
  (typeof INHERITED)[NotificationKey],
][];

export const notificationAttributes = (keys: NotificationKeys): SearchAttributePair[] =>
  notificationKeys.map(([field, name]) => keyword(name, keys[field]));

/** The attributes that a child takes over from its parent: ours only, never those that the server maintains. */
export const inheritedAttributes = (parent: {
  get(key: ReturnType<typeof keyOf>): string | undefined;
}): SearchAttributePair[] =>
  notificationKeys.flatMap(([, name]) => {
    const value = parent.get(keyOf(name));
    return value === undefined ? [] : [keyword(name, value)];
  });

/**
 * All users or none: a list that names some of the recipients would hide the others.
 *
 * @param userIds as `searchableKey` gives them.
 */
export function userAttributes(userIds: string[]): SearchAttributePair[] {
  const isTaken = userIds.length > 0 && JSON.stringify(userIds).length <= MAX_LIST_BYTES;
  return isTaken ? [{ key: { name: 'UserId', type: 'KEYWORD_LIST' }, value: userIds }] : [];
}

/** What the reference of a route tells: its channel, and its user unless the reference is a hash. */
export function routeAttributes(routeRef: string): SearchAttributePair[] {
  const [channel = '', kind, ...id] = routeRef.split(':');
  return [keyword('RouteChannel', channel), ...userAttributes(kind === 'user' ? [id.join(':')] : [])];
}

/** @param classification of the last failure, when one is the reason. */
export const routeStatus = (status: string, classification?: string): SearchAttributePair[] => [
  keyword('RouteStatus', status),
  ...(classification === undefined ? [] : [keyword('FailureClassification', classification)]),
];

export const deadRoutes = (value: number): SearchAttributePair => ({
  key: { name: 'DeadRoutes', type: 'INT' },
  value,
});
