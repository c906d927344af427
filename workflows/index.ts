/** The workflows of the service's one bundle, by the names they are registered with. */
export { accountCallback } from './account-callback.ts';
export { channel } from './channel.ts';
export { notification, notificationBatch } from './intent.ts';
export { notificationRoute } from './intent-route.ts';
export { intentRetention } from './intent-retention.ts';
export { mobileRetention } from './mobile-retention.ts';
export { mobilePush } from './mobile-push.ts';
export { streamBridge } from './stream-bridge.ts';
export { symbolConfig } from './symbol-config.ts';
export { subscriptionSupervisor, subscriptionSweep } from './subscription.ts';
export { subscriptionToken } from './subscription-token.ts';
export { subscriptionWorker } from './subscription-worker.ts';
