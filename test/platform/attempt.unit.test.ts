/** When an attempt of an activity is late, and what is refused to it. */
import type { Context } from '@temporalio/activity';
import { asyncLocalStorage } from '@temporalio/activity';
import type { Pool } from 'pg';
import type { TimeOuts } from '../../activities/attempt.ts';
import { evenIfLate, heartbeat, refuseIfLate, watchAttempts } from '../../activities/attempt.ts';
import { isPostgresAway, query, inTransaction } from '../../activities/postgres.ts';

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
  return asyncLocalStorage.run(context, () => inbound.execute({ args: [], headers: {} }, body) as Promise<T>);
}

/** Lists what PostgreSQL was asked. */
function postgres() {
  const asked: string[] = [];
  const client = {
    async query(statement: string | { name: string }) {
      asked.push(typeof statement === 'string' ? statement : statement.name);
      return { rows: [] };
    },
    ...{ on: () => undefined, off: () => undefined, release: () => undefined },
  };
  const db = {
    ...client,
    connect: (done: (error: undefined, one: unknown) => void) => done(undefined, client),
  };
  return { db: db as unknown as Pool, asked };
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
  const late = attempt(SHORT, () =>
    inTransaction(db, async () => {
      nowMs += 30_001;
    }),
  );
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
