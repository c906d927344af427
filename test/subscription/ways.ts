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

/** Long enough to be reached only by what never ends. */
export const PATIENT = { commandTimeoutMs: 20_000, connectTimeoutMs: 20_000 };

/** An adapter, and the stand-ins that speak as it does. */
export interface Way {
  standIns: RouterTransport;
  messaging: (timeouts?: Timeouts) => MessagingRouter;
  notifications: (timeouts?: Timeouts) => NotificationRouter;
}

interface Timeouts {
  commandTimeoutMs: number;
  connectTimeoutMs: number;
}

const binaryTimeouts = ({ commandTimeoutMs, connectTimeoutMs: timeoutMs }: Timeouts) => ({
  commandTimeoutMs,
  timeoutMs,
});

export const WAYS = {
  https: {
    standIns: HTTPS,
    messaging: (timeouts = PATIENT) => createMessagingRouter(timeouts),
    notifications: (timeouts = PATIENT) => createNotificationRouter(timeouts),
  },
  binary: {
    standIns: BINARY,
    messaging: (timeouts = PATIENT) => createBinaryMessagingRouter(binaryTimeouts(timeouts)),
    notifications: (timeouts = PATIENT) => createBinaryNotificationRouter(binaryTimeouts(timeouts)),
  },
} satisfies Record<string, Way>;
