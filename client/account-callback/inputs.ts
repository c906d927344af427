/**
 * For programs that know the extremes of account values: appends them to the stream of the service
 * (api/account-callback/input-asyncapi.yaml), after the checks that the service makes.
 *
 * ```ts
 * await appendInputs(redis, [{ kind: 'track', user_id: 'user-1', from_ms: Date.now() }]);
 * ```
 */
import type { Redis } from 'ioredis';
import type { CallbackInput } from '../../api/account-callback/input.ts';
import { DEFAULT_INPUT_STREAM, INPUT_FIELD, problemOf } from '../../api/account-callback/input.ts';
import { OperationFailedError } from '../errors.ts';

/**
 * @returns the ids of the entries.
 * @throws OperationFailedError naming what the service would refuse; nothing is appended then.
 */
export async function appendInputs(redis: Redis, inputs: readonly CallbackInput[]): Promise<string[]> {
  for (const input of inputs) {
    const problem = problemOf(input, Date.now());
    if (problem !== undefined) throw new OperationFailedError(`the service would refuse this: ${problem}`);
  }
  const pipeline = redis.pipeline();
  for (const input of inputs) {
    pipeline.xadd(DEFAULT_INPUT_STREAM, '*', INPUT_FIELD, JSON.stringify(input));
  }
  const replies = (await pipeline.exec()) ?? [];
  return replies.map(([error, id]) => {
    if (error) throw error;
    return String(id);
  });
}
