/** Whether the far sides of a role can be reached: connections are opened and closed again, nothing is sent. */
import { readFileSync } from 'node:fs';
import { createConnection } from 'node:net';
import { symbolTargetsSchema } from '../api/symbol-config/push.ts';
import type { Config } from '../config/load.ts';
import type { CheckGroup, Diagnosis } from './checks.ts';
import { error, ok, warn } from './checks.ts';
import { countOf } from './output.ts';
import { causeOf } from '../client/errors.ts';

const CONNECT_LIMIT_MS = 2_000;
/** Of those that cannot be reached, so many are named. */
const NAMED = 5;

interface Place {
  name: string;
  host: string;
  port: number;
}

/** What the configured roles reach for; only what is configured is looked at, stand-ins are not. */
export function reachChecks({ roles, values }: Config): CheckGroup[] {
  const groups: CheckGroup[] = [];
  const { NOTIFICATION_PORTFOLIO_BASE_URL: portfolio, NOTIFICATION_SYMBOL_TARGETS_FILE: targets } = values;
  if (roles.includes('account-callback') && portfolio !== undefined) {
    groups.push([
      [
        'portfolio service',
        () =>
          reach(
            [placeOf('portfolio service', portfolio)],
            'callbacks wait and are tried again until it answers',
          ),
      ],
    ]);
  }
  if (roles.includes('symbol-config') && targets !== undefined) {
    groups.push([
      [
        'symbol targets',
        () =>
          reach(
            targetsOf(targets),
            'they are pushed to again until they answer; see symbols status --behind',
          ),
      ],
    ]);
  }
  return groups;
}

function placeOf(name: string, url: string): Place {
  const { hostname, port, protocol } = new URL(url);
  const host = hostname.replace(/^\[(.*)\]$/, '$1');
  return { name, host, port: Number(port || (protocol === 'https:' ? 443 : 80)) };
}

/** @throws Error when the file cannot be read, which the check then says. */
function targetsOf(file: string): Place[] {
  const targets = symbolTargetsSchema.parse(JSON.parse(readFileSync(file, 'utf8')));
  return targets.map(({ name, url }) => placeOf(name, url));
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
