/**
 * Who this service is to the programs that it calls by HTTP: a bearer token, a client certificate, signatures. What
 * changes is used from the next call on.
 */
import type { AgentOptions, IncomingMessage } from 'node:http';
import { Agent as HttpAgent, request as httpRequest } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { createSecureContext } from 'node:tls';
import { given } from '../../api/given.ts';
import { signedHeaders } from '../../api/webhooks.ts';

/** An idle connection is closed after this time, ms. */
const IDLE_MS = 4_000;

export interface CallerCredentials {
  /** Sent as `Authorization: Bearer`. */
  token?: string | undefined;
  /** Authorities that the server's certificate is checked against, PEM; without them, those that Node trusts. */
  ca?: string | undefined;
  /** Client certificate and its key, PEM. */
  cert?: string | undefined;
  key?: string | undefined;
  /** Each signs what is sent with a body; none: it is not signed. */
  signingSecrets?: readonly string[] | undefined;
}

export interface HttpCall {
  method: 'GET' | 'POST' | 'PUT';
  headers: Record<string, string>;
  body?: string;
  /** For the whole exchange, reading included. */
  signal: AbortSignal;
}

export type HttpCaller = ReturnType<typeof createHttpCaller>;

/**
 * @param maxSockets connections to one server; further calls wait for one.
 * @throws Error when certificate, key or authority cannot be used.
 */
export function createHttpCaller(first: CallerCredentials = {}, idleMs = IDLE_MS, maxSockets = Infinity) {
  let credentials = first;
  const connections = { keepAlive: true, timeout: idleMs, maxSockets };
  const plain = new HttpAgent(connections);
  let secure = secureAgentFor(first, connections);
  return {
    /**
     * Calls over the connections of now. Redirects are not followed, and interim answers (1xx) passed over.
     *
     * @returns the beginning of the answer; its body must be read.
     * @throws the reason of the signal, or why there is no answer.
     */
    request: (url: string, { body, signal, ...call }: HttpCall): Promise<IncomingMessage> =>
      new Promise((resolve, reject) => {
        const isSecure = url.startsWith('https:');
        const options = { ...call, signal, agent: isSecure ? secure : plain };
        (isSecure ? httpsRequest : httpRequest)(url, options, resolve)
          .on('error', (error) => reject((signal.aborted ? signal.reason : error) as Error))
          .end(body);
      }),

    /** Of a call, or of one attempt of a delivery that is to be signed. */
    headers(delivery?: { id: string; body: string }): Record<string, string> {
      const { token, signingSecrets = [] } = credentials;
      return {
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
        ...(delivery ? signedHeaders(signingSecrets, delivery.id, delivery.body) : {}),
      };
    },

    /** Calls under way end as they began. @throws Error when certificate, key or authority cannot be used. */
    use(next: CallerCredentials): void {
      secure = secureAgentFor(next, connections);
      credentials = next;
    },

    /** Breaks off what is under way. */
    close(): void {
      for (const agent of [plain, secure]) agent.destroy();
    },
  };
}

function secureAgentFor({ ca, cert, key }: CallerCredentials, connections: AgentOptions): HttpsAgent {
  const tls = given({ ca, cert, key });
  createSecureContext(tls);
  return new HttpsAgent({ ...tls, ...connections });
}
