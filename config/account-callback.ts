/** Configuration of account callbacks. */
import { ACCOUNT_CALLBACK_TASK_QUEUE } from '../workflows/account-callback/contract.ts';
import { callerWires, placeAt, signingVariable } from './caller.ts';
import type { ServiceValues } from './service.ts';
import { durations, httpUrl, integer } from './variables.ts';
import type { Kind, ValuesOf } from './variables.ts';

/** What the names begin with by which calls to the portfolio service are proven. */
export const PORTFOLIO = 'NOTIFICATION_PORTFOLIO';

export const ACCOUNT_CALLBACK_VARIABLES = {
  NOTIFICATION_PORTFOLIO_BASE_URL: httpUrl
    .describe('Base URL of the portfolio service. Required in production by the role account-callback.')
    .meta({ requiredByRole: true }),
  NOTIFICATION_PORTFOLIO_SIGNING_SECRETS: signingVariable('portfolio service'),
  NOTIFICATION_CALLBACK_SHARDS: integer(1, 1_000)
    .prefault('4')
    .describe(
      'Shards that users are spread over, each with its own workflow. It stays as it was for the first users.',
    ),
  NOTIFICATION_CALLBACK_RETRY_LADDER: durations
    .prefault('1m,5m,15m,1h,2h')
    .describe('Delays after each failed attempt of a callback; after as many retries it is dropped.'),
};

export const ACCOUNT_CALLBACK: Kind<ServiceValues & ValuesOf<typeof ACCOUNT_CALLBACK_VARIABLES>> = {
  variables: ACCOUNT_CALLBACK_VARIABLES,
  taskQueue: ACCOUNT_CALLBACK_TASK_QUEUE,
  wires: (values) =>
    callerWires(values, {
      ...{ prefix: PORTFOLIO, connection: 'portfolio', name: 'portfolio service', isSigned: true },
      address: 'NOTIFICATION_PORTFOLIO_BASE_URL',
      places: placeAt('portfolio service', values.NOTIFICATION_PORTFOLIO_BASE_URL),
      meanwhile: 'callbacks wait and are tried again until it answers',
    }),
};
