/** How this process proves who it is to the programs that it calls, with secrets that may be renewed meanwhile. */
import type { HttpCaller } from '../activities/http/caller.ts';
import { createHttpCaller } from '../activities/http/caller.ts';
import { callerCredentials } from '../config/caller.ts';
import type { Config } from '../config/load.ts';
import type { ProcessContext } from './context.ts';

/**
 * @param prefix of the variables. @param what for the log.
 * @throws Error when certificate, key or authority cannot be used.
 */
export function openCaller(
  { config, open, renewable }: ProcessContext,
  prefix: string,
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
