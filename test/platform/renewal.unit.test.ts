/** Which part takes which file, and what is left alone when one cannot be used. */
import type { Config } from '../../config/load.ts';
import { loadConfig } from '../../config/load.ts';
import type { RenewablePart } from '../../workers/context.ts';
import { createLogger } from '../../workers/logger.ts';
import { startRenewal } from '../../workers/renewal.ts';
import { eventually } from '../eventually.ts';
import { scratchFolder } from '../scratch.ts';

const { write: fileOf } = scratchFolder('renewal');

const SECRET = `whsec_${Buffer.alloc(24, 'secret').toString('base64')}`;
const PEM = '-----BEGIN CERTIFICATE-----\n';

test('I60 of a file that two parts share each takes its own, and one that refuses holds up no other', async () => {
  const shared = fileOf('ca.pem', `${PEM}1`);
  const config = loadConfig({
    NOTIFICATION_REDIS_MASTER_ADDR: 'rediss://redis:6379',
    NOTIFICATION_REDIS_CA_FILE: shared,
    NOTIFICATION_POSTGRES_PRIMARY_DSN: `postgres://u@db/x?sslmode=verify-full&sslrootcert=${shared}`,
    NOTIFICATION_PORTFOLIO_SIGNING_SECRETS_FILE: fileOf('secret', SECRET),
  });
  const taken: string[] = [];
  let isRedisAway = true;
  const part = (what: string, variable: string, take: (next: Config) => void): RenewablePart => ({
    what,
    variables: [variable],
    renew: take,
  });
  const lines: string[] = [];
  const renewal = startRenewal(
    config,
    [
      part('Redis', 'NOTIFICATION_REDIS_', ({ values }) => {
        if (isRedisAway) throw new Error('connect ECONNREFUSED');
        taken.push(`redis ${values.NOTIFICATION_REDIS_CA_FILE?.at(-1)}`);
      }),
      part('PostgreSQL', 'NOTIFICATION_POSTGRES_PRIMARY_DSN', ({ values, files }) => {
        const used = files.find(({ variable }) => variable === 'NOTIFICATION_POSTGRES_PRIMARY_DSN');
        // What Redis has not taken is not in use for anybody else either.
        taken.push(`postgres ${used?.text?.at(-1)}, redis ${values.NOTIFICATION_REDIS_CA_FILE?.at(-1)}`);
      }),
      part('portfolio', 'NOTIFICATION_PORTFOLIO_', () => taken.push('secret')),
    ],
    { log: createLogger('info', { write: (line: string) => void lines.push(line) }), everyMs: 10 },
  );
  fileOf('ca.pem', `${PEM}2`);
  await eventually('PostgreSQL to take it', async () => taken.length > 0);
  expect(taken).toEqual(['postgres 2, redis 1']);
  expect(renewal.refused()).toEqual([
    { variable: 'NOTIFICATION_REDIS_CA_FILE', path: shared, reason: 'connect ECONNREFUSED' },
  ]);
  fileOf('secret', 'short');
  await eventually('two refusals', async () => renewal.refused().length === 2);
  expect(renewal.refused()[1]!.reason).toMatch(
    /^NOTIFICATION_PORTFOLIO_SIGNING_SECRETS entry 1 must be whsec_/,
  );
  expect(taken).toHaveLength(1);

  isRedisAway = false;
  await eventually('Redis to take it', async () => taken.length === 2);
  expect(taken[1]).toBe('redis 2');
  fileOf('secret', SECRET);
  await eventually('no refusal', async () => renewal.refused().length === 0);
  await renewal.stop();
  expect(taken).toHaveLength(2);
  // Each refusal once, however often it was tried.
  expect(lines.filter((line) => line.includes('keeps the old values'))).toHaveLength(2);
  expect(lines.join('')).not.toMatch(/short|BEGIN/);
});

test('I60 parts that share a variable take the same text, also when its file changes between the two', async () => {
  const shared = fileOf('http-ca.pem', `${PEM}1`);
  const config = loadConfig({ NOTIFICATION_HTTP_CA_FILE: shared });
  const taken: Record<string, string[]> = { first: [], second: [] };
  const partOf = (what: string): RenewablePart => ({
    what,
    variables: ['NOTIFICATION_HTTP_'],
    renew({ values }) {
      taken[what]!.push(values.NOTIFICATION_HTTP_CA_FILE!.at(-1)!);
      if (what === 'first' && taken[what]!.length === 1) fileOf('http-ca.pem', `${PEM}3`);
    },
  });
  const log = createLogger('silent');
  const renewal = startRenewal(config, [partOf('first'), partOf('second')], { log, everyMs: 10 });
  fileOf('http-ca.pem', `${PEM}2`);
  try {
    await eventually('both to have the last text', async () =>
      Object.values(taken).every((texts) => texts.at(-1) === '3'),
    );
  } finally {
    await renewal.stop();
  }
  expect(taken).toEqual({ first: ['2', '3'], second: ['2', '3'] });
});
