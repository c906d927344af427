/** Which part takes which file, and what is left alone when one cannot be used. */
import { loadConfig } from '../../config/load.ts';
import type { RenewablePart } from '../../workers/context.ts';
import { createLogger } from '../../workers/logger.ts';
import { startRenewal } from '../../workers/renewal.ts';
import { eventually } from '../eventually.ts';
import { scratchFolder } from '../scratch.ts';

const { write: fileOf } = scratchFolder('renewal');

const SECRET = `whsec_${Buffer.alloc(24, 'secret').toString('base64')}`;
const PEM = '-----BEGIN CERTIFICATE-----\n';

const part = (what: string, variable: string, renew: RenewablePart['renew']) => ({
  ...{ what, variables: [variable], renew },
});
/** Contents of the files of tests differ at their end. */
const endOf = (text: string | undefined) => text?.at(-1);

test('I60 of a file that two parts share each takes its own, and one that refuses holds up no other', async () => {
  const shared = fileOf('ca.pem', `${PEM}1`);
  const DSN = 'NOTIFICATION_POSTGRES_PRIMARY_DSN';
  const config = loadConfig({
    NOTIFICATION_REDIS_MASTER_ADDR: 'rediss://redis:6379',
    NOTIFICATION_REDIS_CA_FILE: shared,
    [DSN]: `postgres://u@db/x?sslmode=verify-full&sslrootcert=${shared}`,
    NOTIFICATION_PORTFOLIO_SIGNING_SECRETS_FILE: fileOf('secret', SECRET),
  });
  const taken: string[] = [];
  let isRedisAway = true;
  const parts = [
    part('Redis', 'NOTIFICATION_REDIS_', ({ values }) => {
      if (isRedisAway) throw new Error('connect ECONNREFUSED');
      taken.push(`redis ${endOf(values.NOTIFICATION_REDIS_CA_FILE)}`);
    }),
    part('PostgreSQL', DSN, ({ values, files }) => {
      const used = files.find(({ variable }) => variable === DSN);
      // What Redis has not taken is not in use for anybody else either.
      taken.push(`postgres ${endOf(used?.text)}, redis ${endOf(values.NOTIFICATION_REDIS_CA_FILE)}`);
    }),
    part('portfolio', 'NOTIFICATION_PORTFOLIO_', () => void taken.push('secret')),
  ];
  const lines: string[] = [];
  const log = createLogger('info', { write: (line: string) => void lines.push(line) });
  const renewal = startRenewal(config, parts, { log, everyMs: 10 });
  fileOf('ca.pem', `${PEM}2`);
  await eventually('PostgreSQL to take it', async () => taken.length > 0);
  expect(taken).toEqual(['postgres 2, redis 1']);
  expect(renewal.refused()).toEqual([
    { variable: 'NOTIFICATION_REDIS_CA_FILE', path: shared, reason: 'connect ECONNREFUSED' },
  ]);
  fileOf('secret', 'short');
  await eventually('two refusals', async () => renewal.refused().length === 2);
  const reason = 'NOTIFICATION_PORTFOLIO_SIGNING_SECRETS entry 1 must be whsec_';
  expect(renewal.refused()[1]!.reason).toContain(reason);
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
  const config = loadConfig({ NOTIFICATION_HTTP_CA_FILE: fileOf('http-ca.pem', `${PEM}1`) });
  const taken = { first: '', second: '' };
  const partOf = (what: keyof typeof taken) =>
    part(what, 'NOTIFICATION_HTTP_', ({ values }) => {
      taken[what] += endOf(values.NOTIFICATION_HTTP_CA_FILE);
      if (taken.first === '2') fileOf('http-ca.pem', `${PEM}3`);
    });
  const log = createLogger('silent');
  const renewal = startRenewal(config, [partOf('first'), partOf('second')], { log, everyMs: 10 });
  fileOf('http-ca.pem', `${PEM}2`);
  try {
    await eventually('both to have the last text', async () => taken.second.endsWith('3'));
  } finally {
    await renewal.stop();
  }
  expect(taken).toEqual({ first: '23', second: '23' });
});
