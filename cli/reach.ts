/** Whether the far sides of a role can be reached: connections are opened and closed again, nothing is sent. */
import { createConnection } from 'node:net';
import { causeOf } from '../client/errors.ts';
import type { FarSide, Place } from '../config/variables.ts';
import type { CheckGroup, Diagnosis } from './checks.ts';
import { error, ok, warn } from './checks.ts';
import { countOf } from './output.ts';

const CONNECT_LIMIT_MS = 2_000;
/** At most so many places that cannot be reached are named. */
const NAMED = 5;

/** One check for each of them. */
export function reachChecks(farSides: readonly FarSide[]): CheckGroup[] {
  return farSides.map(({ name, places, meanwhile }) => [[name, () => reach(places(), meanwhile)]]);
}

async function reach(places: Place[], meanwhile: string): Promise<Diagnosis> {
  const failures = (
    await Promise.all(
      places.map(async ({ name, host, port }) => {
        const reason = await refusalOf(host, port);
        return reason === undefined ? [] : [`${name}: ${reason}`];
      }),
    )
  ).flat();
  const [first] = places;
  if (failures.length === 0) {
    return ok(places.length === 1 ? `${first!.host}:${first!.port} answers` : `all ${places.length} answer`);
  }
  const named = failures.slice(0, NAMED).join('; ');
  const more = failures.length > NAMED ? `; and ${countOf(failures.length - NAMED, 'other')}` : '';
  const detail = `${failures.length} of ${places.length} cannot be reached: ${named}${more}`;
  return failures.length === places.length ? error(detail, meanwhile) : warn(detail, meanwhile);
}

/** @returns why a connection cannot be opened; undefined when it can. */
function refusalOf(host: string, port: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = createConnection({ host, port, timeout: CONNECT_LIMIT_MS });
    const end = (reason?: string) => {
      socket.destroy();
      resolve(reason);
    };
    socket.once('connect', () => end());
    socket.once('timeout', () => end(`no answer within ${CONNECT_LIMIT_MS / 1_000} s`));
    socket.once('error', (failure) => end(causeOf(failure)));
  });
}
