/**
 * Who may ask a router next. Each endpoint has turns of its own, and no endpoint waits for another: a router that does
 * not answer holds up nobody but those who want it. And those not for long: whoever waits for it when it turns out to
 * be silent hears so immediately, instead of finding out for himself after another time-out.
 */
import type { RouterError } from './ports.ts';

/** Batches that one endpoint is asked at the same time. */
const AT_ONCE = 8;
/** Of these, from one session: as many as it has connections. */
const AT_ONCE_OF_SESSION = 4;
/** A router that was silent is asked one at a time until it answers. */
const AT_ONCE_WHILE_SILENT = 1;
/** Endpoints known to be silent that are remembered; beyond that, the ones found silent first are forgotten. */
const KEPT_ENDPOINTS = 1_024;

export interface RouterTurns {
  /**
   * Does work on an endpoint when it is its turn.
   *
   * @param work says in `silent` why the router said nothing at all, if it did not.
   * @returns what the work returns, or why nobody gets an answer from there at present.
   */
  take<T>(
    endpoint: string,
    session: string,
    work: () => Promise<{ value: T; silent?: RouterError }>,
  ): Promise<{ value: T } | { silent: RouterError }>;
}

interface Endpoint {
  running: number;
  bySession: Map<string, number>;
  waiting: Waiting[];
  /** Times that it has answered; compared, not counted. */
  answers: number;
  isSilent: boolean;
}

interface Waiting {
  session: string;
  begin: () => void;
  giveUp: (silent: RouterError) => void;
}

export function createRouterTurns(): RouterTurns {
  const endpoints = new Map<string, Endpoint>();

  function endpointNamed(name: string): Endpoint {
    const known = endpoints.get(name);
    if (known) return known;
    const fresh: Endpoint = {
      running: 0,
      bySession: new Map(),
      waiting: [],
      answers: 0,
      isSilent: false,
    };
    endpoints.set(name, fresh);
    for (const [other, endpoint] of endpoints) {
      if (endpoints.size <= KEPT_ENDPOINTS) break;
      if (isIdle(endpoint) && other !== name) endpoints.delete(other);
    }
    return fresh;
  }

  return {
    async take(name, session, work) {
      const endpoint = endpointNamed(name);
      const silentBefore = await new Promise<RouterError | undefined>((resolve) => {
        endpoint.waiting.push({ session, begin: () => resolve(undefined), giveUp: resolve });
        beginNext(endpoint);
      });
      if (silentBefore) return { silent: silentBefore };
      const { answers } = endpoint;
      try {
        const { value, silent } = await work();
        if (!silent) {
          endpoint.answers += 1;
          endpoint.isSilent = false;
        } else if (endpoint.answers === answers) {
          // Nobody else has heard from it meanwhile either.
          endpoint.isSilent = true;
          for (const { giveUp } of endpoint.waiting.splice(0)) giveUp(silent);
        }
        return { value };
      } finally {
        endTurn(endpoint, session);
        beginNext(endpoint);
        if (isIdle(endpoint) && !endpoint.isSilent) endpoints.delete(name);
      }
    },
  };
}

/** Begins those that may begin, the longest waiting first. */
function beginNext(endpoint: Endpoint): void {
  const { waiting, bySession } = endpoint;
  const atOnce = endpoint.isSilent ? AT_ONCE_WHILE_SILENT : AT_ONCE;
  while (endpoint.running < atOnce) {
    const index = waiting.findIndex(({ session }) => (bySession.get(session) ?? 0) < AT_ONCE_OF_SESSION);
    const [next] = index === -1 ? [] : waiting.splice(index, 1);
    if (!next) return;
    endpoint.running += 1;
    bySession.set(next.session, (bySession.get(next.session) ?? 0) + 1);
    next.begin();
  }
}

function endTurn(endpoint: Endpoint, session: string): void {
  const { bySession } = endpoint;
  const left = bySession.get(session)! - 1;
  endpoint.running -= 1;
  if (left === 0) bySession.delete(session);
  else bySession.set(session, left);
}

const isIdle = ({ running, waiting }: Endpoint): boolean => running === 0 && waiting.length === 0;
