/** Configuration of mobile pushes. */
import { z } from 'zod';
import { MOBILE_TASK_QUEUE } from '../workflows/mobile-push/contract.ts';
import type { ServiceValues } from './service.ts';
import { duration, httpsUrl, integer } from './variables.ts';
import type { Kind, ValuesOf } from './variables.ts';

export const MOBILE_PUSH_VARIABLES = {
  NOTIFICATION_MOBILE_AUTOCLAIM_MIN_IDLE: duration
    .prefault('30s')
    .describe(
      'Age at which an entry that was not acknowledged is delivered again, how often to look for those, and the time between two attempts of a push to one device, unless FCM asks for another.',
    ),
  NOTIFICATION_MOBILE_MAX_DELIVERY_COUNT: integer(1, 1_000)
    .prefault('5')
    .describe('Deliveries after which an unacknowledged entry is given up.'),
  NOTIFICATION_MOBILE_SEND_ATTEMPTS: integer(1, 1_000)
    .prefault('5')
    .describe('Attempts of a push to one device in total.'),
  NOTIFICATION_MOBILE_TIME_TO_LIVE: duration
    .prefault('1d')
    .describe(
      'From the arrival of a job until its pushes expire, unless expires_at_ms says when: they are not sent after that, and FCM keeps them no longer.',
    ),

  GOOGLE_APPLICATION_CREDENTIALS: z
    .string()
    .min(1)
    .describe(
      'JSON file of the service account that sends through FCM; required in production by the role mobile-push.',
    )
    .meta({ requiredByRole: true }),
  NOTIFICATION_FCM_BRAKE: duration
    .prefault('1m')
    .describe('Shortest pause of all sends after FCM said that its quota is spent.'),
  NOTIFICATION_FCM_ENDPOINT: httpsUrl
    .describe(
      'A server that stands in for FCM, outside production; NOTIFICATION_HTTP_CA_FILE holds for it as well.',
    )
    .meta({ refusedInProduction: 'pushes would go to a server that is not FCM' }),
};

export const MOBILE_PUSH: Kind<ServiceValues & ValuesOf<typeof MOBILE_PUSH_VARIABLES>> = {
  variables: MOBILE_PUSH_VARIABLES,
  taskQueue: MOBILE_TASK_QUEUE,
  // HTTPS always, with the account of the credentials; another server is refused in production.
  wires: () => [{ name: 'FCM', gaps: [] }],
  reconciliation: { purpose: 'push jobs whose workflow is lost are not taken up' },
};
