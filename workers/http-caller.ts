/** How this process proves who it is to the programs that it calls, with secrets that may be renewed meanwhile. */
import type { HttpCaller } from '../activities/http/caller.ts';
import { createHttpCaller } from '../activities/http/caller.ts';
import type { PORTFOLIO } from '../config/account-callback.ts';
import { callerCredentials } from '../config/caller.ts';
import type { USER_SERVICE } from '../config/intent.ts';
import type { Config } from '../config/load.ts';
import type { SYMBOL_TARGETS } from '../config/symbol-config.ts';
import type { ProcessContext } from './context.ts';

type Called = typeof USER_SERVICE | typeof PORTFOLIO | typeof SYMBOL_TARGETS;

/**
 * @param prefix of the variables. @param what for the log.
 * @throws Error when certificate, key or authority cannot be used.
 */
export function openCaller(
  { config, open, renewable }: ProcessContext,
  prefix: Called,
  what: string,
  idleMs?: number,
): HttpCaller {
  const credentials = (now: Config) => callerCredentials(now, prefix);
  const caller = createHttpCaller(credentials(config), idleMs);
  open.add(what, () => caller.close());
  renewable.push({
    what,
    variables: [`${prefix}_TOKEN`, `${prefix}_SIGNING_SECRETS`, 'NOTIFICATION_HTTP_'],
    renew: (next) => caller.use(credentials(next)),
  });
  return caller;
}
