/** Answers of stand-ins that a test holds. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { startPortfolioService } from '../../dev/stand-ins/account-callback/portfolio-service.ts';
import type { HeldAnswer } from '../../dev/stand-ins/failure-scripts.ts';
import { answerIsDue, holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import { startUserService } from '../../dev/stand-ins/intent/user-service.ts';
import { startSymbolTargets } from '../../dev/stand-ins/symbol-config/targets.ts';

let folder: string;
beforeEach(() => void (folder = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-held-'))));
afterEach(() => rmSync(folder, { recursive: true }));

interface StandIn {
  fail(script: { failure: HeldAnswer }): void;
  stop(): Promise<void>;
}

/** Each stand-in with a request that it answers. */
const STAND_INS: [string, () => Promise<[StandIn, () => Promise<Response>]>][] = [
  [
    'User Service',
    async () => {
      const users = await startUserService();
      return [users, () => fetch(`${users.url}/api/v1/internal/users/user-1`)];
    },
  ],
  [
    'portfolio service',
    async () => {
      const portfolio = await startPortfolioService();
      return [
        portfolio,
        () =>
          fetch(`${portfolio.url}/api/v1/internal/portfolios/user-1/callbacks/hourly`, {
            method: 'POST',
            body: '{}',
          }),
      ];
    },
  ],
  [
    'symbol targets',
    async () => {
      const targets = await startSymbolTargets({ storeDir: folder });
      return [targets, () => fetch(targets.targets[0]!.url, { method: 'POST', body: '{"version":1}' })];
    },
  ],
];

describe.each(STAND_INS)('%s', (_, start) => {
  test('answers what it held as it answers anything else, once that is released', async () => {
    const [standIn, ask] = await start();
    try {
      const usual = (await ask()).status;
      const answers = holdAnswers();
      standIn.fail({ failure: answers.failure });
      let status: number | undefined;
      const asked = ask().then((answer) => (status = answer.status));
      await answers.arrived;
      expect(status).toBeUndefined();
      answers.release();
      await asked;
      expect(status).toBe(usual);
      expect((await ask()).status).toBe(usual);
    } finally {
      await standIn.stop();
    }
  });

  test('stops while it holds an answer', async () => {
    const [standIn, ask] = await start();
    const answers = holdAnswers();
    standIn.fail({ failure: answers.failure });
    const asked = ask().catch((error: Error) => error.message);
    await answers.arrived;
    await standIn.stop();
    expect(await asked).toBe('fetch failed');
  });
});

test('an answer is due once it is released, by a failure as well, and not after the stand-in has stopped', async () => {
  const stopping = new AbortController();
  const answers = holdAnswers();
  const [held, failed, late] = [
    answers.failure,
    { kind: 'hold' as const, until: Promise.reject(new Error('a test')) },
    { kind: 'delay' as const, ms: 600_000 },
  ].map((failure) => answerIsDue(failure, stopping.signal));
  expect(await failed).toBe(true);
  answers.release();
  expect(await held).toBe(true);
  stopping.abort();
  expect(await late).toBe(false);
  expect(await answerIsDue(answers.failure, stopping.signal)).toBe(false);
});
