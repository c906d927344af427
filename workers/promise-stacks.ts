/**
 * What the Web UI shows as the call stack of a workflow: where each promise was made that it waits for.
 *
 * The SDK writes that down for each promise when it is made, as text, with the lines of our sources. This costs a workflow
 * more than its own code does, and hardly anybody ever asks. Here a promise keeps its bare stack, and the text is made for
 * whoever asks; it is the same text.
 */
import v8 from 'node:v8';
import { cutoffStackTrace } from '@temporalio/common';
import { globalHandlers } from '@temporalio/worker/lib/workflow/vm-shared.js';
import type { Activator, PromiseStackStore } from '@temporalio/workflow/lib/internals.js';

/** Where promises are made: one context of V8 for all workflows of a thread. */
export interface Sandbox {
  Promise: PromiseConstructor;
  Error: ErrorConstructor;
  /** @returns that of the workflow that runs at this moment. */
  activator(): Activator | undefined;
}

type Trace = PromiseStackStore['promiseToStack'] extends Map<unknown, infer T> ? T : never;

interface Kept {
  parent: Promise<unknown> | undefined;
  stack: Error;
  /** Of `stack`, once somebody has asked: V8 writes it only once. */
  trace?: Trace;
  /** The last one without a parent at that time. What `Promise.all` and the like make for themselves stands for theirs. */
  root: Root;
  /** That one was settled by then: it was no aggregate, but one of its values. */
  isLate: boolean;
}

interface Root {
  /** Undefined once nobody can wait for it any more. */
  promise: Promise<unknown> | undefined;
}

/** Those of one workflow that are not settled, in the order in which they were made. */
class Promises {
  /** Of the next one that has a parent. */
  private root: Root = { promise: undefined };
  private readonly kept = new Map<Promise<unknown>, Kept>();

  add(promise: Promise<unknown>, parent: Promise<unknown> | undefined, stack: Error): void {
    if (parent === undefined) this.root = { promise };
    this.kept.set(promise, { parent, stack, root: this.root, isLate: this.root.promise === undefined });
  }

  drop(promise: Promise<unknown>): boolean {
    const root = this.kept.get(promise)?.root;
    if (root?.promise === promise) root.promise = undefined;
    return this.kept.delete(promise);
  }

  /** @returns what the SDK's query asks of its store, and drops from it. */
  store(): PromiseStackStore {
    const drop = (promise: Promise<unknown>) => this.drop(promise);
    return {
      promiseToStack: { delete: drop, get: (promise) => this.shown(promise) },
      childToParent: { delete: drop, keys: () => this.links().keys(), values: () => this.links().values() },
    } as PromiseStackStore;
  }

  private shown(promise: Promise<unknown>): Trace | undefined {
    const one = this.kept.get(promise);
    return one && !isOfAggregate(one) ? traceOf(one) : undefined;
  }

  /** Whom each of them waits for. */
  private links(): Map<Promise<unknown>, Set<Promise<unknown>>> {
    const links = new Map<Promise<unknown>, Set<Promise<unknown>>>();
    for (const [promise, one] of this.kept) {
      const waiting = isOfAggregate(one) && !one.isLate ? one.root.promise : promise;
      // For an aggregate that is settled nobody waits, whatever the rest of its promises do.
      if (waiting === undefined) continue;
      const parents = links.get(waiting) ?? new Set();
      if (one.parent) parents.add(one.parent);
      links.set(waiting, parents);
    }
    return links;
  }
}

const promisesOf = new WeakMap<Activator, Promises>();

/**
 * Takes the place of the SDK's hook, which is about to be installed in this thread.
 *
 * @returns a function that takes the sandbox, once there is one.
 */
export function replacePromiseHook(): (sandbox: Sandbox) => void {
  let of: Sandbox | undefined;
  /** @returns nothing for those of the thread itself. */
  const ofWorkflow = (promise: Promise<unknown>): Promises | undefined => {
    const activator = of && promise instanceof of.Promise ? of.activator() : undefined;
    return activator && promisesOf.get(activator);
  };
  const setPromiseHook = (): void => {
    v8.promiseHooks.createHook({
      init(promise, parent: Promise<unknown> | undefined) {
        if (promise !== parent) ofWorkflow(promise)?.add(promise, parent, new of!.Error());
      },
      settled(promise) {
        ofWorkflow(promise)?.drop(promise);
      },
    });
    globalHandlers.promiseHookInstalled = true;
  };
  Object.assign(globalHandlers, { setPromiseHook });
  return (sandbox) => {
    of = sandbox;
  };
}

/** From now on the promises of this workflow are kept. */
export function keepStacksOf(activator: Activator): void {
  const promises = new Promises();
  promisesOf.set(activator, promises);
  Object.assign(activator, { promiseStackStore: promises.store() });
}

const AGGREGATE = String.raw`\s+at (?:Function|Promise)\.(?:race|all|allSettled|any) \(<anonymous>\)\n`;
const OF_AGGREGATE = new RegExp(String.raw`^\s+at Promise\.then \(<anonymous>\)\n${AGGREGATE}`);

const isOfAggregate = (one: Kept): boolean => OF_AGGREGATE.test(traceOf(one).formatted);

/** @returns the stack without the frames of the hook and of what calls the workflow. */
function traceOf(one: Kept): Trace {
  if (one.trace) return one.trace;
  const lines = one.stack.stack!.split('\n').slice(1);
  const own = lines[1]?.includes('initAll (node:internal/promise_hooks') ? 2 : 1;
  const formatted = cutoffStackTrace(lines.slice(own).join('\n'));
  const count = formatted === '' ? 0 : formatted.split('\n').length;
  one.trace = { formatted, structured: (globalHandlers.currentStackTrace ?? []).slice(own, own + count) };
  return one.trace;
}
