/**
 * A model of one intent on its way: row, memory of hand-offs, streams, workflows and what consumers saw are the state,
 * every step of the product, every crash and every fallback of a store is a move. All that can happen within so many
 * moves is tried, and from each state on everything recovers that recovers by itself.
 *
 * It proves the design and not the code: when a step of the product changes, change its move.
 */
import fc from 'fast-check';
import type { Mechanisms } from './mechanisms.ts';
import { ALL } from './mechanisms.ts';
import { recoveryOf, search, walk } from './search.ts';
import type { StoreName } from './state.ts';

const LOST = 'an acknowledged intent is never delivered';
const LATE = 'it is delivered after its cancellation was confirmed';
/** Moves until a counterexample, at most. */
const DEPTH = 14;
/** Moves within which all mechanisms together are proved. `npm run test:all` sets MODEL_DEPTH to 16. */
const PROOF_DEPTH = Number(process.env['MODEL_DEPTH'] ?? 13);

type Allowed = Omit<Parameters<typeof search>[1], 'depth'>;

const without = (...missing: (keyof Mechanisms)[]): Mechanisms => ({
  ...ALL,
  ...Object.fromEntries(missing.map((name) => [name, false])),
});

describe('with all mechanisms', () => {
  const scopes: [string, Allowed][] = [
    ['a process dies', { crashes: 1 }],
    ['the last attempt fails', { failures: 1 }],
    ['User Service is away', { troubles: 1 }],
    ['an operator cancels', { cancels: 1, stores: ['redis', 'temporal'] }],
    ['an operator cancels what is accepted', { lateCancels: 1 }],
    ['the memory of a hand-off fades', { fadings: 1 }],
  ];
  test.each(scopes)(
    'I3 I46 I49 nothing is lost, doubled or left behind when a store falls back and %s',
    (_, allowed) => {
      const found = search(ALL, { depth: PROOF_DEPTH, fallbacks: 1, ...allowed });
      expect(found.counterexample).toBeUndefined();
      // The search was not empty.
      expect(found.states).toBeGreaterThan(1_000);
    },
  );

  test.each<[string, keyof Mechanisms, string, Allowed]>([
    ['what is lost outbound is not handed off again', 'repair', LOST, {}],
    ['no process takes up what is open', 'reconciler', LOST, {}],
    ['Redis alone has the offset', 'keepsOffsetWithRows', LOST, {}],
    ['a reader does not look for its offset', 'looks', LOST, {}],
    [
      'a cancelled intent without a record leaves no row',
      'recordsCancellation',
      LATE,
      { cancels: 1, stores: ['temporal'] },
    ],
    [
      'a route is closed before its row is settled only',
      'closesTwice',
      LATE,
      { cancels: 1, stores: ['redis'] },
    ],
    ['an attempt hands off in whatever Redis', 'knowsHistory', LATE, { lateCancels: 1, stores: ['redis'] }],
    [
      'an attempt goes on whose record is gone',
      'voidsAttempts',
      LATE,
      { lateCancels: 1, stores: ['postgres'] },
    ],
  ])('I3 I46 I49 each is needed: %s', (_, missing, problem, allowed) => {
    const found = search(without(missing), { depth: DEPTH, fallbacks: 1, ...allowed });
    expect(found.counterexample?.problem).toBe(problem);
  });

  test('I3 I46 I49 nothing is lost on long ways, with two fallbacks of a store and several other faults', () => {
    const recover = recoveryOf(ALL);
    const allowed = { fallbacks: 2, crashes: 3, failures: 2, troubles: 1, fadings: 2 };
    fc.assert(
      fc.property(
        fc.constantFrom<StoreName>('redis', 'postgres', 'temporal'),
        fc.array(fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }), {
          minLength: 15,
          maxLength: 80,
        }),
        (store, choices) => {
          const cancels = store === 'postgres' ? { lateCancels: 1 } : { cancels: 1 };
          const { state, moves } = walk(ALL, { ...allowed, ...cancels, stores: [store] }, choices);
          const wrong = recover(state);
          if (wrong) throw new Error(`${wrong.problem}: ${[...moves, '--', ...wrong.recovery].join('; ')}`);
        },
      ),
      { numRuns: 2_000 },
    );
  });

  test('I26 what it does not protect from: PostgreSQL forgets the row of an intent that is cancelled before it is accepted', () => {
    const found = search(ALL, { depth: PROOF_DEPTH, fallbacks: 1, cancels: 1, stores: ['postgres'] });
    expect(found.counterexample?.problem).toBe(LATE);
  });
});
