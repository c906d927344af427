/** Configuration of mobile pushes. */
import { z } from 'zod';
import { MOBILE_TASK_QUEUE } from '../workflows/mobile-push/contract.ts';
import type { ServiceValues } from './service.ts';
import { duration, httpsUrl, integer } from './values.ts';
import type { Kind, ValuesOf } from './variables.ts';
import { variable } from './variables.ts';

export const MOBILE_PUSH_VARIABLES = {
  NOTIFICATION_MOBILE_AUTOCLAIM_MIN_IDLE: variable(
    duration,
    'Age at which an entry that was not acknowledged is delivered again, how often to look for those, and the time between two attempts of a push to one device, unless FCM asks for another.',
    '30s',
  ),
  NOTIFICATION_MOBILE_MAX_DELIVERY_COUNT: variable(
    integer(1, 1_000),
    'Deliveries after which an unacknowledged entry is given up.',
    '5',
  ),
  NOTIFICATION_MOBILE_SEND_ATTEMPTS: variable(
    integer(1, 1_000),
    'Attempts of a push to one device in total.',
    '5',
  ),
  NOTIFICATION_MOBILE_TIME_TO_LIVE: variable(
    duration,
    'From the arrival of a job until its pushes expire, unless expires_at_ms says when: they are not sent after that, and FCM keeps them no longer.',
    '1d',
  ),

  GOOGLE_APPLICATION_CREDENTIALS: variable(
    z.string().min(1),
    'JSON file of the service account that sends through FCM; required in production by the role mobile-push.',
    { requiredByRole: true },
  ),
  NOTIFICATION_FCM_BRAKE: variable(
    duration,
    'Shortest pause of all sends after FCM said that its quota is spent.',
    '1m',
  ),
  NOTIFICATION_FCM_ENDPOINT: variable(
    httpsUrl,
    'A server that stands in for FCM, outside production; NOTIFICATION_HTTP_CA_FILE holds for it as well.',
    { refusedInProduction: 'pushes would go to a server that is not FCM' },
  ),
};

export const MOBILE_PUSH: Kind<ServiceValues & ValuesOf<typeof MOBILE_PUSH_VARIABLES>> = {
  variables: MOBILE_PUSH_VARIABLES,
  taskQueue: MOBILE_TASK_QUEUE,
  // HTTPS always, with the account of the credentials; another server is refused in production.
  wires: () => [{ name: 'FCM', isAllowed: false, gaps: [] }],
  reconciliation: { purpose: 'push jobs whose workflow is lost are not taken up' },
};
