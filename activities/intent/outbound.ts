/** What leaves for a route: an entry of the gateway's stream or of the mail service's. */
import type { Catalog } from '../../api/intent/catalog.ts';
import type { EntryField } from '../../api/intent/outbound-entries.ts';
import { mailEntryFields, encodePushPayload, gatewayEntryFields } from '../../api/intent/outbound-entries.ts';
import type { PublicationFailure } from '../../workflows/failures.ts';
import type { IntentResources } from './resources.ts';
import type { RouteRow } from './route-rows.ts';

export interface OutboundEntry {
  stream: string;
  maxLen?: number;
  fields: EntryField[];
  /** How a failure to append this entry is classified. */
  failure: PublicationFailure;
}

/** @throws Error when the stored payload does not fit the outbound contract. */
export type Encoder = (route: RouteRow) => OutboundEntry;

/** What many recipients get is encoded once. */
export function createEncoder(settings: IntentResources['route'], catalog: Catalog): Encoder {
  const encoded = new Map<string, Uint8Array>();

  function payloadOf({ carriedId, notificationType, payloadJson }: RouteRow): Uint8Array {
    const known = encoded.get(carriedId);
    if (known) return known;
    const payload = JSON.parse(payloadJson) as Record<string, unknown>;
    const bytes = encodePushPayload(catalog, notificationType, payload);
    encoded.set(carriedId, bytes);
    return bytes;
  }

  return (route) => {
    const carried = { ...route, notificationId: route.carriedId };
    const type = catalog.types.get(route.notificationType);
    if (route.channel === 'push') {
      const digest: EntryField[] = type?.collapse?.digest ? [['item_count', String(route.itemCount)]] : [];
      return {
        stream: settings.gatewayStream,
        maxLen: settings.gatewayMaxLen,
        failure: 'gateway_stream_publish_failed',
        fields: [...gatewayEntryFields({ ...carried, payloadBytes: payloadOf(route) }), ...digest],
      };
    }
    return {
      stream: settings.mailStream,
      failure: 'mail_stream_publish_failed',
      fields: mailEntryFields({
        ...carried,
        // A type without a configured template uses one with its name; so does a type that left the catalog.
        templateId: type?.templateId ?? route.notificationType,
        email: route.email ?? '',
        locale: route.locale ?? 'en',
      }),
    };
  };
}
