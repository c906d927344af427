/** One mobile push job, for people. */
import { printFields, printHeading, printTable } from '../output.ts';
import type { MobileJobView } from '../../client/mobile-push/jobs.ts';

export function printMobileJob(view: MobileJobView): void {
  printHeading(`Mobile push job ${view.jobId}`);
  printFields([
    ['status', view.status],
    ['user', view.userId],
    ['channel', view.channel],
    ['arrived', view.createdAt],
    ['changed', view.updatedAt],
    [
      'devices',
      view.tokens === 0 ? undefined : `${view.sent} reached, ${view.removed} stale, ${view.failed} failed`,
    ],
    ['error', view.errorCode],
    ['message', view.errorMessage],
    ['content', view.content === undefined ? undefined : JSON.stringify(view.content)],
    ['workflow', view.live?.status],
    ['waits for', view.live?.details],
    ['link', view.live?.link ?? view.link],
  ]);
  if (view.rawFields) {
    printHeading('Fields of the entry, cut where they are long');
    printFields(Object.entries(view.rawFields));
  }
  if (view.sends.length === 0) return;
  printHeading('Sends');
  printTable(
    ['DEVICE', 'STATUS', 'ATTEMPTS', 'CHANGED', 'LAST CODE', 'PUSH ID', 'FCM MESSAGE'],
    view.sends.map((send) => [
      send.deviceTokenId,
      send.status,
      send.attempts,
      send.updatedAt,
      send.lastCode,
      send.pushId,
      send.messageId,
    ]),
    { flexible: 6 },
  );
}
