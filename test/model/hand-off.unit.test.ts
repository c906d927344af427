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
import type { Allowance, StoreName } from './state.ts';

const LOST = 'an acknowledged intent is never delivered';
const STUCK = 'a route stays open and no process takes it up';
const LATE = 'it is delivered after its cancellation was confirmed';
const DOUBLED = 'it is delivered twice, under two event ids';
/** Moves until a counterexample, at most. */
const DEPTH = 12;
/** Moves within which all mechanisms together are proved. `npm run test:all` sets MODEL_DEPTH to 12. */
const PROOF_DEPTH = Number(process.env['MODEL_DEPTH'] ?? 10);

const without = (...missing: (keyof Mechanisms)[]): Mechanisms => ({
  ...ALL,
  ...Object.fromEntries(missing.map((name) => [name, false])),
});

describe('with all mechanisms', () => {
  const scopes: [string, Partial<Allowance>][] = [
    ['a process dies', { crashes: 1 }],
    ['the last attempt fails', { failures: 1 }],
    ['User Service is away', { troubles: 1 }],
    ['an operator cancels', { cancels: 1 }],
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

  test.each<[string, keyof Mechanisms, string, Partial<Allowance>]>([
    ['what is lost outbound is not handed off again', 'repair', LOST, {}],
    ['no process takes up open routes', 'reconciler', STUCK, {}],
    ['the stores are not held against each other', 'position', LOST, {}],
    ['entries are read again from the last look on only', 'margin', LOST, {}],
    ['a reader begins at the offset', 'startsFromRow', LOST, { crashes: 1 }],
    ['what Temporal lost is asked for again and again', 'forgetsLost', 'it never comes to rest', {}],
    ['a cancelled intent without a record leaves no row', 'recordsCancellation', LATE, { cancels: 1 }],
    ['a route is closed before its row is settled only', 'closesTwice', LATE, { cancels: 1 }],
    ['an attempt hands off in whatever Redis', 'knowsHistory', LATE, { cancels: 1 }],
    ['an attempt goes on whose record is gone', 'voidsAttempts', LATE, { cancels: 1 }],
  ])('I3 I46 I49 each is needed: %s', (_, missing, problem, allowed) => {
    const found = search(without(missing), { depth: DEPTH, fallbacks: 1, ...allowed });
    expect(found.counterexample?.problem).toBe(problem);
  });

  test('I3 I46 I49 nothing is lost on long ways, with two fallbacks of a store and several other faults', () => {
    const recover = recoveryOf(ALL);
    const allowed = { fallbacks: 2, crashes: 3, failures: 2, troubles: 1, cancels: 1, fadings: 2 };
    fc.assert(
      fc.property(
        fc.constantFrom<StoreName>('redis', 'postgres', 'temporal'),
        fc.array(fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }), {
          minLength: 15,
          maxLength: 80,
        }),
        (store, choices) => {
          const { state, moves } = walk(ALL, { ...allowed, stores: [store] }, choices);
          const wrong = recover(state);
          if (wrong) throw new Error(`${wrong.problem}: ${[...moves, '--', ...wrong.recovery].join('; ')}`);
        },
      ),
      { numRuns: 2_000 },
    );
  });

  test('I3 what it does not protect from: Redis and PostgreSQL that both fall back behind one intent', () => {
    const found = search(ALL, { depth: 9, fallbacks: 2, stores: ['redis', 'postgres'] });
    expect(found.counterexample?.problem).toBe(DOUBLED);
  });
});
