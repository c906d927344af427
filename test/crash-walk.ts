/** Walks a process of the service through all points at which it can die in an activity: see crash-hook.ts. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { WorkflowHandle } from '@temporalio/client';
import type { CrashRule } from './crash-hook.ts';
import type { Slot } from './harness.ts';
import { eventually } from './eventually.ts';
import { ofEachTest } from './of-tests.ts';
import { clockOfRun } from './run-clock.ts';
import type { ServiceProcess } from './service-process.ts';
import { createFleet } from './service-process.ts';

/** For work to be done that nothing is in the way of, on a busy machine. */
const DONE_LIMIT_MS = 120_000;
/** More steps than any activity has. */
const MOST_STEPS = 40;

type CrashWalk = ReturnType<typeof createCrashWalk>;

/** Begins walks of a test. Their processes are killed before its slot is released. */
export function crashWalksOfEachTest(slot: () => Slot) {
  const begun = ofEachTest(
    () => ({ walks: [] as CrashWalk[] }),
    ({ walks }) => Promise.all(walks.map((walk) => walk.release())),
  );
  return (env?: Record<string, string>): CrashWalk => {
    const walk = createCrashWalk(slot(), env);
    begun.walks.push(walk);
    return walk;
  };
}

export function createCrashWalk(slot: Slot, env: Record<string, string> = {}) {
  const fleet = createFleet(slot);
  const folder = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-crash-'));
  const ruleFile = path.join(folder, 'rule.json');
  const setRule = (rule?: CrashRule) => writeFileSync(ruleFile, rule ? JSON.stringify(rule) : '');
  let service: ServiceProcess | undefined;

  const start = async (): Promise<ServiceProcess> => {
    if (service?.isRunning()) return service;
    // What the dead left is not to kill this one while it starts.
    setRule();
    service = await fleet.start({
      ...env,
      CRASH_RULE: ruleFile,
      NODE_OPTIONS: `${clockOfRun()['NODE_OPTIONS'] ?? ''} --import ./test/crash-hook.ts`,
    });
    return service;
  };

  return {
    /**
     * Gives work to processes that die after the first step of an activity, after the second, and so on, until one does
     * all of it and lives.
     *
     * @param put gives the work; its result says whether the process has lived to see it done.
     * @param prepare what takes long and what the work needs, which what the dead left must not interrupt.
     * @returns how many processes died.
     */
    async through(
      activity: string,
      put: () => Promise<() => Promise<boolean>>,
      mostSteps = MOST_STEPS,
      prepare?: () => Promise<void>,
    ): Promise<number> {
      for (let step = 1; step <= mostSteps; step += 1) {
        const running = await start();
        await prepare?.();
        setRule({ activity, step });
        const isDone = await put();
        if (await livesUntil(running, isDone)) {
          setRule();
          return step - 1;
        }
        const exitCode = await running.end('SIGKILL');
        if (exitCode !== null) throw new Error(`the process ended by itself, with ${exitCode}`);
      }
      return mostSteps;
    },
    /** A process that lives, to end what the dead left. */
    survivor: start,
    async release() {
      await fleet.killAll();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/**
 * No client waits for the answer of a process that is to die. One that comes says that the process has lived to see the
 * end, while what an activity has written may be seen just before its process dies of it.
 */
export function answerTo(operation: Promise<unknown>): () => Promise<boolean> {
  let isAnswered = false;
  operation.then(
    () => (isAnswered = true),
    () => undefined,
  );
  return async () => isAnswered;
}

/** No process works on this workflow: Temporal takes the work of a dead process for under way at first. */
export async function isAtRest(workflow: WorkflowHandle): Promise<boolean> {
  const { raw } = await workflow.describe();
  return (raw.pendingActivities ?? []).length === 0;
}

/** @returns false when the process died before. */
async function livesUntil(service: ServiceProcess, isDone: () => Promise<boolean>): Promise<boolean> {
  await eventually(
    'the process to die or to do its work',
    async () => !service.isRunning() || (await isDone()),
    DONE_LIMIT_MS,
  );
  return service.isRunning();
}
