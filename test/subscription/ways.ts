/** The ways in which routers are spoken to: adapters, and the stand-ins that speak as they do. */
import {
  createBinaryMessagingRouter,
  createBinaryNotificationRouter,
} from '../../activities/subscription/router/binary/routers.ts';
import {
  createMessagingRouter,
  createNotificationRouter,
} from '../../activities/subscription/router/http.ts';
import type { MessagingRouter, NotificationRouter } from '../../activities/subscription/router/ports.ts';
import { BINARY } from '../../dev/stand-ins/subscription/binary/transport.ts';
import { HTTPS } from '../../dev/stand-ins/subscription/https.ts';
import type { RouterTransport } from '../../dev/stand-ins/subscription/transport.ts';

/** An adapter, and the stand-ins that speak as it does. */
export interface Way {
  standIns: RouterTransport;
  messaging: (timeouts?: Timeouts) => MessagingRouter;
  notifications: (timeouts?: Timeouts) => NotificationRouter;
}

/** By default those of the product, which are long. */
interface Timeouts {
  commandTimeoutMs?: number;
}

export const WAYS = {
  https: {
    standIns: HTTPS,
    messaging: (timeouts?: Timeouts) => createMessagingRouter(timeouts),
    notifications: (timeouts?: Timeouts) => createNotificationRouter(timeouts),
  },
  binary: {
    standIns: BINARY,
    messaging: (timeouts?: Timeouts) => createBinaryMessagingRouter(timeouts),
    notifications: (timeouts?: Timeouts) => createBinaryNotificationRouter(timeouts),
  },
} satisfies Record<string, Way>;
