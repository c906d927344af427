/** What the answer to a command becomes. */
import type { RouterError, RouterResult } from './ports.ts';

/** An answer to another command. */
export const UNEXPECTED = Symbol('unexpected');

const UNEXPECTED_ANSWER: RouterError = {
  source: 'BROKER',
  code: 'UNEXPECTED',
  detail: 'the answer belongs to another command',
};

export function readResult<Answer, Value>(
  result: RouterResult<Answer>,
  read: (answer: Answer) => Value | typeof UNEXPECTED,
): RouterResult<Value> {
  if (!result.ok) return result;
  const value = read(result.value);
  return value === UNEXPECTED ? { ok: false, error: UNEXPECTED_ANSWER } : { ok: true, value };
}

export function readOk({ op }: { op: string }): undefined | typeof UNEXPECTED {
  return op === 'OK' ? undefined : UNEXPECTED;
}

export function readPong({ op }: { op: string }): undefined | typeof UNEXPECTED {
  return op === 'PONG' ? undefined : UNEXPECTED;
}
