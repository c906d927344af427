/** Statements: what is refused to an attempt that is late, what a failure is called by its SQLSTATE, and batches of retention. */
import type { Context } from '@temporalio/activity';
import { ApplicationFailure, asyncLocalStorage } from '@temporalio/activity';
import type { Pool } from 'pg';
import pg from 'pg';
import type { TimeOuts } from '../../activities/attempt.ts';
import { evenIfLate, heartbeat, refuseIfLate, watchAttempts } from '../../activities/attempt.ts';
import {
  finalIfRefused,
  inTransaction,
  isPostgresAway,
  postgresFailure,
  query,
} from '../../activities/postgres.ts';
import { deleteExpired } from '../../dev/retention.ts';

describe('a late attempt', () => {
  const STATEMENT = { name: 'a_statement', text: 'SELECT 1' };
  const BEATING: TimeOuts = { isLocal: false, startToCloseTimeoutMs: 600_000, heartbeatTimeoutMs: 10_000 };
  const SHORT: TimeOuts = { isLocal: false, startToCloseTimeoutMs: 30_000 };
  const LOCAL: TimeOuts = { isLocal: true, startToCloseTimeoutMs: 60_000 };

  let nowMs = 0;
  let watch: ReturnType<typeof watchAttempts>;
  beforeEach(() => {
    nowMs = 1_000_000;
    jest.spyOn(performance, 'now').mockImplementation(() => nowMs);
    watch = watchAttempts();
  });
  afterEach(() => {
    watch.stop();
    jest.restoreAllMocks();
  });

  /** Time passes in a process that runs: attempts begin now and then, as the pulse does. */
  async function pass(ms: number): Promise<void> {
    for (const endMs = nowMs + ms; nowMs < endMs; nowMs += 500) await attempt(SHORT, async () => undefined);
  }

  /** Runs an attempt as a worker does. */
  function attempt<T>(info: TimeOuts, body: () => Promise<T>): Promise<T> {
    const context = { info, heartbeat: () => undefined } as unknown as Context;
    const [interceptor] = watch.interceptors;
    const { inbound } = interceptor!(context);
    return asyncLocalStorage.run(
      context,
      () => inbound.execute({ args: [], headers: {} }, body) as Promise<T>,
    );
  }

  /** Lists what PostgreSQL was asked. */
  function postgres() {
    const asked: string[] = [];
    const nothing = () => undefined;
    const client = {
      async query(statement: string | { name: string }) {
        asked.push(typeof statement === 'string' ? statement : statement.name);
        return { rows: [] };
      },
      ...{ on: nothing, off: nothing, release: nothing },
    };
    const connect = (done: (error: undefined, one: unknown) => void) => done(undefined, client);
    return { db: { ...client, connect } as unknown as Pool, asked };
  }

  const LATE = { type: 'AttemptLate', nonRetryable: false };

  test('kinds-F2 a late attempt begins no statement and no transaction, and is retried', async () => {
    const { db, asked } = postgres();
    await attempt(SHORT, async () => {
      nowMs += 30_000;
      await query(db, STATEMENT, []);
      nowMs += 1;
      const failure = await query(db, STATEMENT, []).catch((error: unknown) => error);
      expect(failure).toMatchObject({ ...LATE, message: expect.stringMatching(/late .*a_statement/) });
      expect(isPostgresAway(failure)).toBe(true);
      await expect(inTransaction(db, async () => 1)).rejects.toMatchObject(LATE);
      expect(asked).toEqual(['a_statement']);
      await evenIfLate(() => query(db, STATEMENT, []));
    });
    await query(db, STATEMENT, []);
    expect(asked).toHaveLength(3);
  });

  test('kinds-F2 a transaction whose attempt has become late is rolled back', async () => {
    const { db, asked } = postgres();
    const late = attempt(SHORT, () => inTransaction(db, async () => void (nowMs += 30_001)));
    await expect(late).rejects.toMatchObject(LATE);
    expect(asked).toEqual(['BEGIN', 'ROLLBACK']);
  });

  test('kinds-F2 an attempt that heartbeats goes on, and is late for good after a silence', async () => {
    await attempt(BEATING, async () => {
      for (let beats = 0; beats < 100; beats += 1) {
        nowMs += 2_000;
        heartbeat();
      }
      // The last one may be held back for 2 s.
      nowMs += 8_000;
      refuseIfLate('it');
      nowMs += 1;
      heartbeat();
      expect(() => refuseIfLate('it')).toThrow('it was silent for 10.0 s');
    });
  });

  test('kinds-F2 without any heartbeat the silence counts from the beginning', async () => {
    await attempt(BEATING, async () => {
      nowMs += 10_000;
      refuseIfLate('it');
      nowMs += 1;
      expect(() => refuseIfLate('it')).toThrow('silent');
    });
  });

  test('kinds-F2 an attempt of another does not make this one late', async () => {
    const { promise: woken, resolve: wake } = Promise.withResolvers<void>();
    const late = attempt(SHORT, async () => {
      await woken;
      refuseIfLate('it');
    });
    await pass(40_000);
    await attempt(SHORT, async () => {
      wake();
      await expect(late).rejects.toMatchObject(LATE);
      refuseIfLate('it');
    });
  });

  test('kinds-F2 a task that arrived while the process stood still is not begun', async () => {
    await pass(5_000);
    nowMs += 60_000;
    const begun: string[] = [];
    await expect(attempt(SHORT, async () => void begun.push('late'))).rejects.toMatchObject(LATE);
    await expect(attempt(BEATING, async () => void begun.push('silent'))).rejects.toMatchObject(LATE);
    await attempt({ ...SHORT, startToCloseTimeoutMs: 120_000 }, async () => void begun.push('long'));
    nowMs += 1_000;
    await attempt(SHORT, async () => void begun.push('next'));
    expect(begun).toEqual(['long', 'next']);
  });

  test('kinds-F2 a local attempt is late when the process stands still for as long as its workflow task may', async () => {
    await attempt(LOCAL, async () => {
      await pass(30_000);
      refuseIfLate('it');
      nowMs += 10_001;
      await pass(500);
      expect(() => refuseIfLate('it')).toThrow('silent');
    });
  });
});

const serverError = (code: string, message = 'no') =>
  Object.assign(new pg.DatabaseError(message, message.length, 'error'), { code });
const failureOf = (error: Error) => postgresFailure('a_statement', error);

test.each([
  ['PostgresRefused', 'a violated constraint', '23514'],
  ['PostgresRefused', 'a key that is taken', '23505'],
  ['PostgresRefused', 'a number out of range', '22003'],
  ['PostgresRefused', 'text that is no text', '22021'],
  ['PostgresRefused', 'an index row that is too large', '54000'],
  ['PostgresRefused', 'one row twice in one statement', '21000'],
  ['PostgresUnusable', 'no permission', '42501'],
  ['PostgresUnusable', 'no such table', '42P01'],
  ['PostgresUnusable', 'no such column', '42703'],
  ['PostgresUnusable', 'a read-only server', '25006'],
  ['PostgresUnusable', 'a full disk', '53100'],
  ['PostgresUnusable', 'a wrong password', '28P01'],
  ['PostgresUnusable', 'no such database', '3D000'],
  ['PostgresUnavailable', 'a statement that took too long', '57014'],
  ['PostgresUnavailable', 'a server that shuts down', '57P01'],
  ['PostgresUnavailable', 'a database that takes no connections', '55000'],
  ['PostgresUnavailable', 'too many connections', '53300'],
  ['PostgresUnavailable', 'a deadlock', '40P01'],
])('I24 security-22 %s: %s', (type, _what, code) => {
  const failure = failureOf(serverError(code));
  expect(failure).toMatchObject({ type, nonRetryable: false, details: [{ sqlState: code }] });
  expect(failure.message).toBe(`PostgreSQL did not run a_statement: no (SQLSTATE ${code})`);
});

test('I24 security-22 a broken connection has no SQLSTATE and is waited for', () => {
  const failure = failureOf(new Error('Connection terminated unexpectedly'));
  expect(failure).toMatchObject({ type: 'PostgresUnavailable', nonRetryable: false });
});

test('I34 security-22 a refused value is not quoted', () => {
  const quoted = serverError('22P02', 'invalid input syntax for type integer: "a@b.example"');
  expect(failureOf(quoted).message).not.toContain('a@b.example');
});

test('I24 security-22 only a refusal is final for callers that ask', () => {
  const refused = finalIfRefused(failureOf(serverError('23514')));
  expect(refused).toMatchObject({
    type: 'PostgresRefused',
    nonRetryable: true,
    details: [{ sqlState: '23514' }],
  });
  const readOnly = failureOf(serverError('25006'));
  expect(finalIfRefused(readOnly)).toBe(readOnly);
  expect(readOnly).toBeInstanceOf(ApplicationFailure);
});

test('I44 a table is deleted from although PostgreSQL takes seconds for one row', async () => {
  const realNow = performance.now.bind(performance);
  let tookMs = 0;
  const clock = jest.spyOn(performance, 'now').mockImplementation(() => realNow() + tookMs);
  const query = ({ values: [, limit] }: { values: [age: number, limit: number] }) => {
    if (limit === 1) return Promise.resolve({ rows: [{ deleted: 1, seen: 1, place: 'later' }] });
    // As long as a statement may take.
    tookMs += 5_000;
    return Promise.reject(serverError('57014', 'canceling statement'));
  };
  const slow = { name: 'slow', table: 'notification.slow', since: 'created_at', keepMs: 1 };
  const { deleted, isUnfinished } = await deleteExpired({ query } as unknown as Pool, [slow]);
  clock.mockRestore();
  expect({ deleted, isUnfinished }).toEqual({ deleted: { slow: 2 }, isUnfinished: true });
});
