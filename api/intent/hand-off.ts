/** What both outbound stream entries have in common. */

/** One field of a Redis stream entry, in the order it is appended. */
export type EntryField = [name: string, value: string | Buffer];

/** The route being handed off. */
export interface HandOff {
  /** The stream entry id of the intent, the newest of those that it carries. */
  notificationId: string;
  /** `<channel>:<recipient_ref>`. */
  routeId: string;
  requestId?: string | null | undefined;
  traceId?: string | null | undefined;
  traceparent?: string | null | undefined;
}

/** `<notification_id>/<route_id>`: what consumers deduplicate on, as `event_id` and `delivery_id`. */
export function handOffId({ notificationId, routeId }: HandOff): string {
  return `${notificationId}/${routeId}`;
}

/** `request_id`, `trace_id` and `traceparent`, each only when the intent had one. */
export const tracingFields = ({ requestId, traceId, traceparent }: HandOff): EntryField[] =>
  Object.entries({ request_id: requestId, trace_id: traceId, traceparent }).flatMap(
    ([name, value]): EntryField[] => (value ? [[name, value]] : []),
  );
