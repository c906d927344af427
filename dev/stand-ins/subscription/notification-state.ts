/** What a stand-in notification router keeps. Binary values are base64url. */
import type {
  DeviceToken,
  RouterAddress,
  TokenStatus,
} from '../../../activities/subscription/router/ports.ts';
import type { Notification } from './transport.ts';

export interface StoredToken {
  tokenId: string;
  device: DeviceToken;
  authKey: string;
  /** The client's half, by which a repeated registration is known. */
  clientDhKey: string;
  routerDhKey: string;
  secret: string;
  code: string;
  status: TokenStatus;
  /** 0: none. */
  cronMinutes: number;
  /** Milliseconds since the epoch. */
  lastCronAt: number;
}

export interface StoredSubscription {
  subscriptionId: string;
  tokenId: string;
  router: RouterAddress;
  notifierId: string;
  notifierPrivateKey: string;
  status: string;
  /** The newest message. */
  last?: Notification;
}

export interface NotificationState {
  tokens: StoredToken[];
  subscriptions: StoredSubscription[];
}
