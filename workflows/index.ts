/** The workflows of the service's one bundle, by the names they are registered with. */

export { accountCallback } from './account-callback/workflow.ts';
export { notification, streamBridge } from './intent/workflow.ts';
export { operation } from './operation.ts';
export { notificationDeadLetter, notificationRoute } from './intent/route.ts';
export { outboundRepair, reconciliation, recovery, retention } from './recovery.ts';
export { mobilePush } from './mobile-push/workflow.ts';
export { symbolConfig } from './symbol-config/workflow.ts';
export { subscriptionSupervisor } from './subscription/supervisor.ts';
export { subscriptionToken } from './subscription/token.ts';
export { subscriptionWorker } from './subscription/worker.ts';
