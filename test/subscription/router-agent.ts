/** A device and its keys, and what routers answer. */
import { randomBytes } from 'node:crypto';
import type { DeviceToken, RouterResult } from '../../activities/subscription/router/ports.ts';

export const newDevice = (): DeviceToken => ({ provider: 'AT', token: randomBytes(32).toString('hex') });

export function valueOf<T>(result: RouterResult<T> | undefined): T {
  if (!result?.ok) throw new Error(JSON.stringify(result));
  return result.value;
}

/** `ok`, or source and code of the error. */
export const outcomeOf = (result: RouterResult<unknown> | undefined): string =>
  result?.ok ? 'ok' : `${result?.error.source} ${result?.error.code}`;
