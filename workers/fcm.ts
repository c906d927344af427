/** The sender to FCM, which is replaced when the service account or the authority changes. */
import type { FcmSender } from '../activities/mobile-push/fcm.ts';
import { createBrake, createFcmSender } from '../activities/mobile-push/fcm.ts';
import { reasonOf } from '../activities/reason.ts';
import type { ProcessContext } from './context.ts';
import { reach, required } from './context.ts';
import { fcmTargetOf } from './embedded.ts';

/** Nothing is asked of FCM yet: its credentials can be checked, its answers depend on the device. */
export function openFcm({ config, endpoints, log, open, renewable }: ProcessContext): Promise<FcmSender> {
  // FCM's quota belongs to the project, so all senders of the process share one brake.
  const brake = createBrake({ minMs: config.values.NOTIFICATION_FCM_BRAKE });
  return reach('FCM', 'GOOGLE_APPLICATION_CREDENTIALS or NOTIFICATION_FCM_ENDPOINT', () => {
    const make = (target = endpoints.fcm) =>
      finishingSender(createFcmSender({ target: required(target), brake }));
    let current = make();
    open.add('FCM', () => current.close());
    renewable.push({
      what: 'FCM',
      variables: ['GOOGLE_APPLICATION_CREDENTIALS', 'NOTIFICATION_HTTP_CA_FILE'],
      renew({ values }) {
        const before = current;
        current = make(fcmTargetOf(values));
        void before
          .closeWhenDone()
          .catch((error: unknown) =>
            log.warn({ reason: reasonOf(error) }, 'former sender to FCM not closed'),
          );
      },
    });
    return { send: (message, token) => current.send(message, token), close: () => current.close() };
  });
}

/** A send that is cut off may have arrived, and would be repeated: those under way can be awaited. */
function finishingSender(sender: FcmSender) {
  const underWay = new Set<Promise<unknown>>();
  return {
    send(...given: Parameters<FcmSender['send']>): ReturnType<FcmSender['send']> {
      const sending = sender.send(...given);
      underWay.add(sending);
      void sending.finally(() => underWay.delete(sending));
      return sending;
    },
    close: () => sender.close(),
    async closeWhenDone(): Promise<void> {
      await Promise.all(underWay);
      await sender.close();
    },
  };
}
