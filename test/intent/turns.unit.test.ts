/** How the lookups of a process are shared by the intents that want them (activities/intent/audience.ts). */
import { createTurns } from '../../activities/intent/audience.ts';

/** A participant whose tasks hang until they are let go. */
function hanging(takeTurn: ReturnType<ReturnType<typeof createTurns>>, count: number) {
  const running: (() => void)[] = [];
  const done = Promise.all(
    Array.from({ length: count }, () => takeTurn(() => new Promise<void>((end) => void running.push(end)))),
  );
  return { running, done, letGo: () => running.shift()?.() };
}

const settle = () => new Promise((resolve) => setImmediate(resolve));

test('intent-P5 one participant leaves half of the turns to others, however many tasks it has', async () => {
  const take = createTurns(8);
  const large = hanging(take(), 100);
  await settle();
  expect(large.running).toHaveLength(4);
  let isDone = false;
  await take()(async () => void (isDone = true));
  expect(isDone).toBe(true);
});

test('intent-P5 two whose tasks hang leave turns to the next participant', async () => {
  const take = createTurns(8);
  const all = [hanging(take(), 100), hanging(take(), 100)];
  await settle();
  expect(all.map(({ running }) => running.length)).toEqual([4, 2]);
  await expect(take()(() => Promise.resolve('served'))).resolves.toBe('served');
});

test('intent-P5 when all turns are taken the next one goes to a participant without a turn', async () => {
  const take = createTurns(8);
  const all = Array.from({ length: 4 }, () => hanging(take(), 100));
  await settle();
  expect(all.map(({ running }) => running.length)).toEqual([4, 2, 1, 1]);
  const newcomer = take()(() => Promise.resolve('served'));
  all[0]!.letGo();
  await expect(newcomer).resolves.toBe('served');
});

test('intent-P5 turns go round: who waits with one task is served before the second of another', async () => {
  const take = createTurns(1);
  const order: string[] = [];
  const mark = (name: string) => async () => void order.push(name);
  const [large, small] = [take(), take()];
  await Promise.all([large(mark('a1')), large(mark('a2')), large(mark('a3')), small(mark('b1'))]);
  expect(order).toEqual(['a1', 'a2', 'b1', 'a3']);
});

test('intent-P5 a task that fails gives its turn back', async () => {
  const take = createTurns(1)();
  await expect(take(() => Promise.reject(new Error('no')))).rejects.toThrow('no');
  await expect(take(() => Promise.resolve('next'))).resolves.toBe('next');
});
