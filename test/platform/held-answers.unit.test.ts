/** Answers of stand-ins that a test holds; all stand-ins await `answerIsDue`. */
import { answerIsDue, holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import { startUserService } from '../../dev/stand-ins/intent/user-service.ts';

test('a held answer comes as any other once it is released, and holds up no stand-in that stops', async () => {
  const users = await startUserService();
  const ask = () => fetch(`${users.url}/api/v1/internal/users/user-1`);
  const usual = (await ask()).status;
  const [first, second] = [holdAnswers(), holdAnswers()];
  users.fail({ failure: first.failure });
  let status: number | undefined;
  const asked = ask().then((answer) => (status = answer.status));
  await first.arrived;
  expect(status).toBeUndefined();
  first.release();
  await asked;
  expect(status).toBe(usual);

  users.heal();
  users.fail({ failure: second.failure });
  const refused = ask().catch((error: Error) => error.message);
  await second.arrived;
  await users.stop();
  expect(await refused).toBe('fetch failed');
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
