/** Secrets in the environment: from files, and never in an error. */
import path from 'node:path';
import type { VARIABLES } from '../../config/load.ts';
import { loadConfig } from '../../config/load.ts';
import { scratchFolder } from '../scratch.ts';
import { PRODUCTION, problemsOf } from './config-problems.ts';

type Name = keyof typeof VARIABLES;

describe('secrets', () => {
  test.each<[Name, string]>([
    ['NOTIFICATION_POSTGRES_PRIMARY_DSN', 'mysql://notify:s3cret@db/notification'],
    ['NOTIFICATION_POSTGRES_PRIMARY_DSN', 'notify:s3cret@db'],
    ['NOTIFICATION_POSTGRES_REPLICA_DSNS', 'postgres://ok/x,notify:s3cret@db'],
    ['NOTIFICATION_REDIS_MASTER_ADDR', 'redis://:s3cret@redis.internal:6379'],
    ['NOTIFICATION_REDIS_REPLICA_ADDRS', 'redis://:s3cret@redis.internal:6379'],
  ])('I30 the value of %s is not shown', (name, text) => {
    const [problem = '', ...others] = problemsOf({ [name]: text });

    expect(others).toEqual([]);
    expect(problem).toContain(name);
    expect(problem).not.toContain('s3cret');
  });

  test('I30 a secret that is fine does not appear in the error about something else', () => {
    expect(problemsOf({ ...PRODUCTION, NOTIFICATION_REDIS_DB: 'x' }).join('\n')).not.toMatch(/s3cret/);
  });

  describe('in files', () => {
    const { dir: folder, write: fileOf } = scratchFolder('secrets');
    const { NOTIFICATION_REDIS_PASSWORD: _, TEMPORAL_API_KEY: _key, ...withoutPassword } = PRODUCTION;

    test('I30 a secret is read from the file that its variable with _FILE names', () => {
      const { values, temporalEnv } = loadConfig({
        ...withoutPassword,
        NOTIFICATION_REDIS_PASSWORD_FILE: fileOf('redis', 's3cret with space \n'),
        TEMPORAL_API_KEY_FILE: fileOf('temporal', 'key'),
      });
      expect(values.NOTIFICATION_REDIS_PASSWORD).toBe('s3cret with space ');
      expect(temporalEnv['TEMPORAL_API_KEY']).toBe('key');
    });

    test('I30 a file that is missing or empty, or stands beside the variable itself, is named', () => {
      const missing = path.join(folder, 'missing');
      expect(problemsOf({ ...withoutPassword, NOTIFICATION_REDIS_PASSWORD_FILE: missing })).toEqual([
        expect.stringMatching(/^NOTIFICATION_REDIS_PASSWORD_FILE cannot be read: ENOENT.*missing/),
      ]);
      const empty = fileOf('empty', '\n');
      expect(problemsOf({ ...withoutPassword, NOTIFICATION_REDIS_PASSWORD_FILE: empty })).toEqual([
        `NOTIFICATION_REDIS_PASSWORD_FILE names an empty file: ${empty}`,
      ]);
      const both = { ...PRODUCTION, NOTIFICATION_REDIS_PASSWORD_FILE: fileOf('both', 'other') };
      expect(problemsOf(both)).toEqual([
        'NOTIFICATION_REDIS_PASSWORD and NOTIFICATION_REDIS_PASSWORD_FILE are both set: keep one of them',
      ]);
      const dsn = fileOf('dsn', 'mysql://notify:s3cret@db/notification');
      const [problem] = problemsOf({ NOTIFICATION_POSTGRES_PRIMARY_DSN_FILE: dsn });
      expect(problem).toContain('NOTIFICATION_POSTGRES_PRIMARY_DSN');
      expect(problem).not.toContain('s3cret');
    });

    test('I30 only secrets are read from files', () => {
      expect(problemsOf({ NOTIFICATION_REDIS_DB_FILE: fileOf('db', '5') })).toEqual([
        expect.stringContaining('did you mean NOTIFICATION_REDIS_DB?'),
      ]);
    });

    test('I60 certificates of Temporal are read with the rest, and what is in files can be read again', () => {
      const env = {
        ...withoutPassword,
        NOTIFICATION_INSECURE: 'temporal',
        NOTIFICATION_REDIS_PASSWORD_FILE: fileOf('password', 'the first password'),
        TEMPORAL_TLS_CLIENT_CERT_PATH: fileOf('client.pem', 'a certificate'),
        TEMPORAL_TLS_CLIENT_KEY_PATH: path.join(folder, 'missing'),
      };
      const config = loadConfig(env);
      expect(config.temporalEnv).toMatchObject({
        TEMPORAL_TLS_CLIENT_CERT_DATA: 'a certificate',
        // Its SDK says what is wrong.
        TEMPORAL_TLS_CLIENT_KEY_PATH: env.TEMPORAL_TLS_CLIENT_KEY_PATH,
      });
      expect(config.temporalEnv).not.toHaveProperty('TEMPORAL_TLS_CLIENT_CERT_PATH');
      expect(config.files.map(({ variable, path: file, text }) => [variable, file, text])).toEqual([
        ['NOTIFICATION_REDIS_PASSWORD_FILE', env.NOTIFICATION_REDIS_PASSWORD_FILE, 'the first password'],
        ['TEMPORAL_TLS_CLIENT_CERT_PATH', env.TEMPORAL_TLS_CLIENT_CERT_PATH, 'a certificate'],
        ['TEMPORAL_TLS_CLIENT_KEY_PATH', env.TEMPORAL_TLS_CLIENT_KEY_PATH, undefined],
      ]);
      const next = config.reread((_, variable) => `new ${variable}`);
      expect(next.values.NOTIFICATION_REDIS_PASSWORD).toBe('new NOTIFICATION_REDIS_PASSWORD_FILE');
      expect(config.values.NOTIFICATION_REDIS_PASSWORD).toBe('the first password');
    });
  });
});
