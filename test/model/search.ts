/** Looks through everything that can happen for something that must not. */
import { hash } from 'node:crypto';
import { STORES, backupsOf, faults } from './faults.ts';
import type { Mechanisms, Move } from './mechanisms.ts';
import { stepsOf } from './moves.ts';
import type { Allowance, State, StoreName } from './state.ts';
import { beginning, copyOf } from './state.ts';

/** Far more steps than a healthy service needs for one intent. */
const MOST_STEPS = 100;

export interface Counterexample {
  problem: string;
  /** What happened, and after the last of these only what happens by itself. */
  moves: string[];
  recovery: string[];
}

export interface Search {
  states: number;
  counterexample?: Counterexample;
}

const NOTHING: Allowance = {
  fallbacks: 0,
  crashes: 0,
  failures: 0,
  troubles: 0,
  cancels: 0,
  lateCancels: 0,
  fadings: 0,
};

const keyOf = (state: State): string => hash('sha1', JSON.stringify(state), 'base64');

/** Recovers states, and knows those that have recovered. */
export function recoveryOf(mechanisms: Mechanisms) {
  const steps = stepsOf(mechanisms);
  const recovered = new Set<string>();

  /** Lets everything happen that happens by itself. @returns what is wrong in the end, and the way to it. */
  return (from: State, keyOfFrom = keyOf(from)): { problem: string; recovery: string[] } | undefined => {
    const passed: string[] = [];
    const recovery: string[] = [];
    const state = copyOf(from);
    for (let key = keyOfFrom; !recovered.has(key); key = keyOf(state)) {
      passed.push(key);
      const step = steps.find(({ make }) => make(state));
      const problem =
        passed.length > MOST_STEPS ? 'it never comes to rest' : step ? undefined : problemOf(state);
      if (problem) return { problem, recovery };
      if (!step) break;
      recovery.push(step.name);
    }
    for (const key of passed) recovered.add(key);
    return undefined;
  };
}

/** @returns the states that these moves lead to. */
export function* after(from: State, moves: readonly Move[]): Generator<{ name: string; state: State }> {
  let state = copyOf(from);
  for (const { name, make } of moves) {
    if (!make(state)) continue;
    yield { name, state };
    // One that is not made changes nothing.
    state = copyOf(from);
  }
}

/** What must hold when nothing is left to happen. */
function problemOf({ postgres: { route, intents }, processes, world }: State): string | undefined {
  if (world.isDeliveredAfterCancel) return 'it is delivered after its cancellation was confirmed';
  if (world.seen.length > 1) return 'it is delivered twice, under two event ids';
  if (Object.keys(processes.attempts).length > 0) return 'an attempt never ends';
  if (route?.status === 'pending') return 'a route stays open and no process takes it up';
  const hasRow = route
    ? route.status === 'skipped'
    : Object.values(intents).some(({ status }) => status === 'cancelled');
  const isCancelled = world.isCancelOrdered && (world.cancelled > 0 || hasRow);
  const isOver = world.acknowledged.length === 0 || isCancelled || world.seen.length > 0;
  return isOver ? undefined : 'an acknowledged intent is never delivered';
}

/** How a state was reached. */
interface Trace {
  name: string;
  before: Trace | undefined;
}

/** One that is still to be gone on from. */
interface Node {
  state: State;
  key: string;
  trace: Trace | undefined;
}

const movesOf = (trace: Trace | undefined): string[] => (trace ? [...movesOf(trace.before), trace.name] : []);

interface Scope extends Partial<Allowance> {
  depth: number;
  /** Which stores may fall back. */
  stores?: readonly StoreName[];
}

/**
 * Breadth first, so that a counterexample is a shortest one. A copy of a store that is kept counts as no move.
 */
export function search(mechanisms: Mechanisms, { depth, stores = STORES, ...allowed }: Scope): Search {
  const backups = backupsOf(stores);
  const moves = [...faults, ...stepsOf(mechanisms)];
  const recover = recoveryOf(mechanisms);
  const known = new Set<string>();
  let frontier: Node[] = [];
  visit(nodeOf(beginning({ ...NOTHING, ...allowed }), undefined), frontier);
  for (let reached = 0; ; reached += 1) {
    for (const node of frontier) {
      const wrong = recover(node.state, node.key);
      if (wrong) return { states: known.size, counterexample: { ...wrong, moves: movesOf(node.trace) } };
    }
    if (reached === depth) return { states: known.size };
    const next: Node[] = [];
    for (const before of frontier) {
      for (const { name, state } of after(before.state, moves)) {
        visit(nodeOf(state, { name, before: before.trace }), next);
      }
    }
    frontier = next;
  }

  function visit(node: Node, into: Node[]): void {
    if (known.has(node.key)) return;
    known.add(node.key);
    into.push(node);
    for (const { name, state } of after(node.state, backups)) {
      visit(nodeOf(state, { name, before: node.trace }), into);
    }
  }
}

/** Walks at random. @param choices of the move among those that can be made, each 0 to 1. */
export function walk(
  mechanisms: Mechanisms,
  { stores = STORES, ...allowed }: Partial<Allowance> & { stores?: readonly StoreName[] },
  choices: readonly number[],
): { state: State; moves: string[] } {
  const moves = [...backupsOf(stores), ...faults, ...stepsOf(mechanisms)];
  let state = beginning({ ...NOTHING, ...allowed });
  const made: string[] = [];
  for (const choice of choices) {
    const possible = [...after(state, moves)];
    const next = possible[Math.floor(choice * possible.length)];
    if (!next) break;
    made.push(next.name);
    state = next.state;
  }
  return { state, moves: made };
}

const nodeOf = (state: State, trace: Trace | undefined): Node => ({ state, key: keyOf(state), trace });
