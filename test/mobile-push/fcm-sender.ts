/** A stand-in FCM and senders to it, new for each test: what the tests of the sender share. */
import type { FcmResult, FcmSender, FcmSenderOptions } from '../../activities/mobile-push/fcm.ts';
import { createFcmSender } from '../../activities/mobile-push/fcm.ts';
import type { MobileMessage } from '../../api/mobile-push/message.ts';
import { mobileMessage } from '../../api/mobile-push/message.ts';
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import type { FcmFailure, FcmStandIn } from '../../dev/stand-ins/mobile-push/fcm.ts';
import { startFcm } from '../../dev/stand-ins/mobile-push/fcm.ts';

/** Long enough to be reached only by what never ends, and the reverse. */
const PATIENT_MS = 14_000;
export const IMPATIENT_MS = 300;
export const NEVER: FcmFailure = holdAnswers().failure;
export const TOKEN = 'token-of-a-phone:APA91b';

export let fcm: FcmStandIn;
/** A patient one, to the project `galaxy`. */
export let sender: FcmSender;
let senders: FcmSender[];

/** Call at the top of a test file. */
export function useFcm(): void {
  beforeEach(async () => {
    fcm = await startFcm();
    senders = [];
    sender = senderWith({});
  });

  afterEach(async () => {
    for (const each of senders) each.close();
    await fcm.stop();
  });
}

/** Another sender, closed with the test. */
export function senderWith(options: Partial<FcmSenderOptions>): FcmSender {
  const target = { endpoint: fcm.url, caPem: fcm.caPem, projectId: 'galaxy' };
  const created = createFcmSender({ target, timeoutMs: PATIENT_MS, ...options });
  senders.push(created);
  return created;
}

export function messageOf(): MobileMessage {
  const content = { title: 'Turn 54', body: 'Your move', channel: 'game', badge: 3, data: { turn: 54 } };
  const built = mobileMessage(content, 'push-1');
  if ('problem' in built) throw new Error(built.problem);
  return built.message;
}

export const tokensSeen = (): string[] => fcm.requests.map(({ token }) => token);

/** What becomes of a send whose first request fails like this. */
export async function outcomeOf(failure: FcmFailure, of: FcmSender = sender): Promise<FcmResult> {
  fcm.fail({ failure, times: 1 });
  return of.send(messageOf(), TOKEN);
}
