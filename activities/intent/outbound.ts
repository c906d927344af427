/** What leaves for a route: an entry of the gateway's stream or of the mail service's. */
import type { Catalog } from '../../api/intent/catalog.ts';
import type { EntryField } from '../../api/intent/hand-off.ts';
import { mailEntryFields } from '../../api/intent/mail-command.ts';
import { encodePushPayload, gatewayEntryFields } from '../../api/intent/push-event.ts';
import type { PublicationFailure } from '../../workflows/failures.ts';
import type { Digest } from './collapse.ts';
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

const contentOf = ({ contentJson, payloadJson }: RouteRow): string => contentJson ?? payloadJson;

/** @returns undefined without a digest. */
function itemCountOf({ types }: Catalog, route: RouteRow): number | undefined {
  if (route.contentJson === null || !types.get(route.notificationType)?.collapse?.digest) return undefined;
  const { items, items_omitted: omitted } = JSON.parse(route.contentJson) as Digest;
  return items.length + omitted;
}

/** What many recipients get is encoded once. */
export function createEncoder(settings: IntentResources['route'], catalog: Catalog): Encoder {
  const encoded = new Map<string, Uint8Array>();

  function payloadOf(route: RouteRow): Uint8Array {
    const { notificationType: type, contentJson } = route;
    const key = contentJson === null ? route.notificationId : `${type} ${contentJson}`;
    const known = encoded.get(key);
    if (known) return known;
    const bytes = encodePushPayload(catalog, type, JSON.parse(contentOf(route)) as Record<string, unknown>);
    encoded.set(key, bytes);
    return bytes;
  }

  return (route) => {
    const carried = { ...route, notificationId: route.carriedId };
    if (route.channel === 'push') {
      return {
        stream: settings.gatewayStream,
        maxLen: settings.gatewayMaxLen,
        failure: 'gateway_stream_publish_failed',
        fields: gatewayEntryFields({
          ...carried,
          payloadBytes: payloadOf(route),
          itemCount: itemCountOf(catalog, route),
        }),
      };
    }
    return {
      stream: settings.mailStream,
      failure: 'mail_stream_publish_failed',
      fields: mailEntryFields({
        ...carried,
        // A type without a configured template uses one with its name; so does a type that left the catalog.
        templateId: catalog.types.get(route.notificationType)?.templateId ?? route.notificationType,
        email: route.email ?? '',
        locale: route.locale ?? 'en',
        payloadJson: contentOf(route),
      }),
    };
  };
}
