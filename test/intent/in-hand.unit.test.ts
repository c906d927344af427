/** How much of a backlog a process begins before it is through with what it has begun. */
import { createInHand } from '../../activities/intent/in-hand.ts';

const NOBODY = () => Promise.resolve(false);
const IDLE = () => Promise.resolve(true);
const never = new AbortController().signal;

/** Whether a promise is settled without more than what is due at once. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let settled = false;
  void promise.then(() => (settled = true));
  await new Promise((resolve) => setImmediate(resolve));
  return settled;
}

test('I88 I1 there is a place for as many as a process has in hand, and then when one is done', async () => {
  const inHand = createInHand(2);
  for (const id of ['1-0', '2-0']) expect(await inHand.place(id, never, NOBODY)).toBe('here');
  const third = inHand.place('next', never, NOBODY);
  expect(await isSettled(third)).toBe(false);
  inHand.done('2-0');
  expect(await third).toBe('here');
});

test('I88 a notification is in hand until its acceptance and all its first attempts are done', async () => {
  const inHand = createInHand(1);
  await inHand.place('1-0', never, NOBODY);
  inHand.add('1-0', 2);
  inHand.done('1-0');
  inHand.done('1-0');
  const next = inHand.place('next', never, NOBODY);
  expect(await isSettled(next)).toBe(false);
  inHand.done('1-0');
  expect(await next).toBe('here');
  // Later attempts, and those of others, are nothing to it.
  inHand.done('1-0');
  inHand.add('unknown', 5);
  inHand.done('unknown');
  expect(await isSettled(inHand.place('another', never, NOBODY))).toBe(false);
});

test('I88 what somebody else has taken over holds nothing up for long', async () => {
  const inHand = createInHand(1, 20);
  await inHand.place('1-0', never, NOBODY);
  expect(await inHand.place('next', never, NOBODY)).toBe('here');
});

test('I36 other processes that wait for work get some while there is no place here', async () => {
  const inHand = createInHand(1);
  await inHand.place('1-0', never, NOBODY);
  expect(await inHand.place('next', never, IDLE)).toBe('elsewhere');
  inHand.done('1-0');
  expect(await inHand.place('next', never, IDLE)).toBe('here');
});

test('I88 Temporal is not asked for other processes with each intent', async () => {
  let asked = 0;
  const nobody = async () => {
    asked += 1;
    return false;
  };
  const inHand = createInHand(1);
  await inHand.place('0-0', never, nobody);
  for (let n = 1; n <= 20; n += 1) {
    const next = inHand.place(`${n}-0`, never, nobody);
    expect(await isSettled(next)).toBe(false);
    inHand.done(`${n - 1}-0`);
    expect(await next).toBe('here');
  }
  expect(asked).toBeLessThan(3);
});

test('I35 nobody waits for a place once it is to stop', async () => {
  const inHand = createInHand(1);
  await inHand.place('1-0', never, NOBODY);
  const stop = new AbortController();
  const waiting = inHand.place('next', stop.signal, NOBODY);
  stop.abort();
  expect(await waiting).toBeUndefined();
  expect(await inHand.place('next', stop.signal, NOBODY)).toBeUndefined();
});
