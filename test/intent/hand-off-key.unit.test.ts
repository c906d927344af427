/** Keys of Redis that outlive what they are about (activities/intent/hand-off.ts). */
import { handOffKey } from '../../activities/intent/hand-off.ts';

test('intent-13 the key of a hand-off names no user, and differs for each route, notification and generation', () => {
  const keys = [
    handOffKey('1-0', 'push:user:ada', 1),
    handOffKey('1-0', 'email:email:ada@example.com', 1),
    handOffKey('1-0', 'push:user:bob', 1),
    handOffKey('2-0', 'push:user:ada', 1),
    handOffKey('1-0', 'push:user:ada', 2),
  ];
  expect(keys.filter((key) => /ada|bob/.test(key))).toEqual([]);
  expect(new Set(keys).size).toBe(5);
});
