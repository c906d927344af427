/** Users who were just looked up are not looked up again (activities/intent/user-service.ts). */
import { rememberRecipients } from '../../activities/intent/user-service.ts';
import type { Recipient } from '../../activities/intent/user-service.ts';

const WINDOW_MS = 1_000;

/** A User Service whose answers are given by hand. */
function scripted() {
  const asked: string[] = [];
  let answer = (userId: string): Promise<Recipient | undefined> =>
    Promise.resolve({ userId, email: `${userId}@example.com`, locale: 'en' });
  let time = 0;
  const { findRecipient } = rememberRecipients(
    {
      findRecipient(userId) {
        asked.push(userId);
        return answer(userId);
      },
    },
    WINDOW_MS,
    () => time,
  );
  return {
    asked,
    findRecipient,
    answerWith: (next: typeof answer) => void (answer = next),
    wait: (ms: number) => void (time += ms),
  };
}

test('I11 lookups of one user at the same time, and within the window, are one', async () => {
  const { asked, findRecipient, wait } = scripted();
  const [first, second] = await Promise.all([findRecipient('a'), findRecipient('a'), findRecipient('b')]);
  expect(second).toBe(first);
  wait(WINDOW_MS - 1);
  await findRecipient('a');
  expect(asked).toEqual(['a', 'b']);
  wait(1);
  await findRecipient('a');
  expect(asked).toEqual(['a', 'b', 'a']);
});

test('I11 a user who is unknown and a lookup that failed are asked for again', async () => {
  const { asked, findRecipient, answerWith } = scripted();
  answerWith(() => Promise.resolve(undefined));
  expect(await findRecipient('new')).toBeUndefined();
  answerWith(() => Promise.reject(new Error('away')));
  await expect(findRecipient('new')).rejects.toThrow('away');
  answerWith((userId) => Promise.resolve({ userId, email: 'new@example.com', locale: 'en' }));
  expect(await findRecipient('new')).toMatchObject({ email: 'new@example.com' });
  expect(asked).toEqual(['new', 'new', 'new']);
});

test('I11 no more users are remembered than fit', async () => {
  const { asked, findRecipient } = scripted();
  for (let user = 0; user < 10_002; user += 1) await findRecipient(`user-${user}`);
  await findRecipient('user-10001');
  expect(asked).toHaveLength(10_002);
  await findRecipient('user-0');
  expect(asked).toHaveLength(10_003);
});
