/** The sentinels that say where the master of Redis is. */
import { causeOf } from '../client/errors.ts';
import type { Config } from '../config/load.ts';
import { redisPlaceOf, sentinelConnection } from '../config/redis.ts';
import type { RedisAddress } from '../config/values.ts';
import type { CheckGroup, Diagnosis } from './checks.ts';
import { error, ok, warn } from './checks.ts';
import { redisForOneLook } from './redis-look.ts';

interface Answer {
  address: string;
  /** host:port; undefined: it knows no master of that name. */
  master: string | undefined;
  /** What it knows of the master, as it calls it: `flags`, `quorum`, `num-slaves`, `num-other-sentinels`. */
  about: Record<string, string>;
}

interface Silence {
  address: string;
  failure: string;
}

const isSilent = (one: Answer | Silence): one is Silence => 'failure' in one;

/** None without sentinels. A group of its own: while no server answers, they are what there is to ask. */
export function sentinelChecks(config: Config): CheckGroup[] {
  const place = redisPlaceOf(config.values);
  if (!place || !('sentinels' in place)) return [];
  return [
    [
      [
        'Redis: sentinels',
        async () =>
          diagnosisOf(
            await Promise.all(place.sentinels.map((address) => ask(address, place.master, config))),
            place.master,
          ),
      ],
    ],
  ];
}

async function ask(address: RedisAddress, name: string, config: Config): Promise<Answer | Silence> {
  const timeout = config.values.NOTIFICATION_REDIS_OPERATION_TIMEOUT;
  const { redis: sentinel, reason } = redisForOneLook(sentinelConnection(config, address), timeout);
  const known = { address: `${address.host}:${address.port}` };
  try {
    const found = (await sentinel.call('SENTINEL', 'get-master-addr-by-name', name)) as
      [host: string, port: string] | null;
    if (!found) return { ...known, master: undefined, about: {} };
    const flat = (await sentinel.call('SENTINEL', 'master', name)) as string[];
    const about = Object.fromEntries(
      flat.flatMap((field, at) => (at % 2 === 0 ? [[field, flat[at + 1]!]] : [])),
    );
    return { ...known, master: found.join(':'), about };
  } catch (failure) {
    return { ...known, failure: causeOf(reason() ?? failure) };
  } finally {
    sentinel.disconnect();
  }
}

/** @param name that the sentinels were asked for. */
function diagnosisOf(answers: readonly (Answer | Silence)[], name: string): Diagnosis {
  const given = answers.filter((answer): answer is Answer => !isSilent(answer));
  const silent = answers.filter(isSilent);
  const masters = [...new Set(given.flatMap(({ master }) => master ?? []))];
  const counted = `${given.length} of ${answers.length} answer`;
  const failures = silent.map(({ address, failure }) => `${address}: ${failure}`).join('; ');
  if (given.length === 0) return error(failures, 'is NOTIFICATION_REDIS_SENTINELS right?');
  if (masters.length === 0) {
    return error(
      `${counted}, and know no master ${name}`,
      'NOTIFICATION_REDIS_SENTINELS ends in /name, as SENTINEL MONITOR calls it',
    );
  }
  const { about } = given.find(({ master }) => master !== undefined)!;
  const all = Number(about['num-other-sentinels'] ?? answers.length - 1) + 1;
  const detail = [
    counted,
    `master ${masters.join(' or ')}`,
    `replicas ${about['num-slaves'] ?? 'unknown'}`,
    `quorum ${about['quorum'] ?? 'unknown'} of ${all}`,
    ...(failures === '' ? [] : [failures]),
  ].join(', ');
  if (masters.length > 1)
    return warn(detail, 'they do not agree: a failover goes on, or they were cut apart');
  if (/down/.test(about['flags'] ?? '')) return warn(detail, 'they hold the master for down');
  if (about['num-slaves'] === '0') return warn(detail, 'without a replica there is nothing to fail over to');
  return silent.length > 0
    ? warn(detail, 'a failover needs a majority of them: bring the others back')
    : ok(detail);
}
