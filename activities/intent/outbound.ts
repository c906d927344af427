/** What leaves for a route: an entry of the gateway's stream or of the mail service's. */
import type { Catalog, NotificationType } from '../../api/intent/catalog.ts';
import type { EntryField } from '../../api/intent/hand-off.ts';
import { mailEntryFields } from '../../api/intent/mail-command.ts';
import { encodePushPayload, gatewayEntryFields } from '../../api/intent/push-event.ts';
import type { PublicationFailure } from '../../workflows/failures.ts';
import type { Digest } from './collapse.ts';
import type { RouteRow } from './route-rows.ts';

export interface OutboundSettings {
  gatewayStream: string;
  /** Approximate length to which Redis trims the gateway stream. */
  gatewayMaxLen: number;
  mailStream: string;
}

export interface OutboundEntry {
  stream: string;
  maxLen?: number;
  fields: EntryField[];
  /** How a failure to append this entry is classified. */
  failure: PublicationFailure;
}

/** @throws Error when the stored payload does not fit the outbound contract. */
export type Encoder = (route: RouteRow) => OutboundEntry;

const contentOf = ({ content_json, payload_json }: RouteRow): string => content_json ?? payload_json;

/** @returns undefined without a digest. */
function itemCountOf({ types }: Catalog, route: RouteRow): number | undefined {
  if (route.content_json === null || !types.get(route.notification_type)?.collapse?.digest) return undefined;
  const { items, items_omitted: omitted } = JSON.parse(route.content_json) as Digest;
  return items.length + omitted;
}

/** What many recipients get is encoded once. */
export function createEncoder(settings: OutboundSettings, catalog: Catalog): Encoder {
  const encoded = new Map<string, Uint8Array>();

  function payloadOf(type: NotificationType, route: RouteRow): Uint8Array {
    const key = route.content_json === null ? route.notification_id : `${type} ${route.content_json}`;
    const known = encoded.get(key);
    if (known) return known;
    const bytes = encodePushPayload(catalog, type, JSON.parse(contentOf(route)) as Record<string, unknown>);
    encoded.set(key, bytes);
    return bytes;
  }

  return (route) => {
    const handOffOf = {
      notificationId: route.carried_id,
      routeId: route.route_id,
      requestId: route.request_id,
      traceId: route.trace_id,
      traceparent: route.traceparent,
    };
    if (route.channel === 'push') {
      const type = route.notification_type;
      return {
        stream: settings.gatewayStream,
        maxLen: settings.gatewayMaxLen,
        failure: 'gateway_stream_publish_failed',
        fields: gatewayEntryFields({
          ...handOffOf,
          notificationType: type,
          recipientRef: route.recipient_ref,
          payloadBytes: payloadOf(type, route),
          itemCount: itemCountOf(catalog, route),
        }),
      };
    }
    return {
      stream: settings.mailStream,
      failure: 'mail_stream_publish_failed',
      fields: mailEntryFields({
        ...handOffOf,
        // A type without a configured template uses one with its name; so does a type that left the catalog.
        templateId: catalog.types.get(route.notification_type)?.templateId ?? route.notification_type,
        email: route.resolved_email ?? '',
        locale: route.resolved_locale ?? 'en',
        acceptedAtMs: Number(route.accepted_at_ms),
        payloadJson: contentOf(route),
      }),
    };
  };
}
