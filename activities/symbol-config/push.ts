/** One push to one target (api/symbol-config/push-openapi.yaml). */
import { request } from 'undici';

/** As much of a refusal as an operator gets to see, bytes. */
const MAX_REASON_BYTES = 300;

export interface PushFailure {
  /** `refused`: answered with another status than 2xx. `failed`: no answer could be had. */
  kind: 'refused' | 'timed_out' | 'failed';
  /** One line, for operators. */
  message: string;
}

/**
 * @param timeoutMs for the whole exchange, connecting and reading included.
 * @param stopped ends the exchange early.
 * @returns why it was not acknowledged, or nothing when it was. Never throws.
 */
export async function pushTo(
  url: string,
  body: string,
  timeoutMs: number,
  stopped: AbortSignal,
): Promise<PushFailure | undefined> {
  try {
    const signal = AbortSignal.any([AbortSignal.timeout(timeoutMs), stopped]);
    const response = await request(url, {
      method: 'PUT',
      headers: { 'content-type': 'application/json' },
      body,
      signal,
    });
    const status = response.statusCode;
    if (status >= 200 && status < 300) {
      // The connection is used again only when its answer is read.
      await response.body.dump({ limit: MAX_REASON_BYTES, signal });
      return undefined;
    }
    return { kind: 'refused', message: `status ${status}${await reasonIn(response.body)}` };
  } catch (error) {
    const { name, message, code } = error as NodeJS.ErrnoException;
    // By name: time-outs of the platform are not instances of this realm's Error everywhere.
    if (name === 'TimeoutError') return { kind: 'timed_out', message: `no answer within ${timeoutMs} ms` };
    return { kind: 'failed', message: message || (code ?? name) };
  }
}

async function reasonIn(body: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of body) {
    chunks.push(chunk);
    size += chunk.length;
    if (size >= MAX_REASON_BYTES) break;
  }
  const text = Buffer.concat(chunks).subarray(0, MAX_REASON_BYTES).toString('utf8');
  // PostgreSQL's text takes no NUL, and a log line no other control character.
  const line = text.replaceAll(/\p{Cc}+/gu, ' ').trim();
  return line === '' ? '' : `: ${line}`;
}
