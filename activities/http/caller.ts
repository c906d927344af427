/**
 * Who this service is to the programs that it calls by HTTP: a bearer token, a client certificate, signatures. What
 * changes is used from the next call on.
 */
import { createSecureContext } from 'node:tls';
import type { Dispatcher } from 'undici';
import { Agent } from 'undici';
import { signedHeaders } from '../../api/webhooks.ts';

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

export interface HttpCaller {
  /** The connections of now; to be asked for at each call. */
  dispatcher(): Dispatcher;
  /** Of a call, or of one attempt of a delivery that is to be signed. */
  headers(delivery?: { id: string; body: string }): Record<string, string>;
  /** Calls under way end as they began. @throws Error when certificate, key or authority cannot be used. */
  use(next: CallerCredentials): void;
  /** Breaks off what is under way. */
  close(): Promise<void>;
}

/** @throws Error when certificate, key or authority cannot be used. */
export function createHttpCaller(first: CallerCredentials = {}, options: Agent.Options = {}): HttpCaller {
  let credentials = first;
  let agent = agentFor(first, options);
  return {
    dispatcher: () => agent,

    headers(delivery) {
      const { token, signingSecrets = [] } = credentials;
      return {
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
        ...(delivery ? signedHeaders(signingSecrets, delivery.id, delivery.body) : {}),
      };
    },

    use(next) {
      const before = agent;
      agent = agentFor(next, options);
      credentials = next;
      // Behind what it was asked.
      void before.close().catch(() => undefined);
    },

    close: () => agent.destroy(),
  };
}

function agentFor({ ca, cert, key }: CallerCredentials, options: Agent.Options): Agent {
  const tls = {
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
  };
  createSecureContext(tls);
  return new Agent({ ...options, connect: tls });
}
