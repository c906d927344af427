/**
 * A late attempt of an activity, in a real worker: the first attempt is held, as in a process that stands still, until
 * Temporal has given the activity to a second one, and goes on after that one has ended.
 */
import { NativeConnection, Worker } from '@temporalio/worker';
import { watchAttempts } from '../activities/attempt.ts';
import { createLogger } from '../workers/logger.ts';
import { installTemporalRuntime } from '../workers/temporal-worker.ts';
import type { Slot } from './harness.ts';
import { bundleOf } from './workflow-code.ts';

const WORKFLOWS = `
  import { proxyActivities } from '@temporalio/workflow';

  export async function callOne(name, args) {
    return proxyActivities({ startToCloseTimeout: '1 second', retry: { initialInterval: 1 } })[name](...args);
  }
`;

type Activities = Record<string, (...args: never[]) => Promise<unknown>>;

/** Holds the first one that comes, until it opens. */
export function createGate() {
  const { promise: reached, resolve: reach } = Promise.withResolvers<void>();
  const { promise: opened, resolve: open } = Promise.withResolvers<void>();
  let comers = 0;
  return {
    reached,
    open,
    pass: async (): Promise<void> => {
      comers += 1;
      reach();
      if (comers === 1) await opened;
    },
  };
}

interface Late<Names> {
  name: Names;
  args: unknown[];
  /** Where the first attempt is held; default: before its first line. */
  gate?: ReturnType<typeof createGate>;
  /** Happens after the successor has ended, and before the late attempt goes on. */
  between: () => Promise<unknown>;
}

/** @returns what the late attempt ends with: its result, or the error. */
export async function runLate<All extends Activities>(
  { client, endpoints }: Slot,
  activities: All,
  { name, args, gate, between }: Late<keyof All & string>,
): Promise<unknown> {
  const { promise: late, resolve: end } = Promise.withResolvers<unknown>();
  const { pass, open } = gate ?? createGate();
  const attempts = watchAttempts();
  // Not the one with the number 1: on a busy machine its time can be over before this worker has it.
  let isFirst = true;
  const inbound = {
    async execute<Input>(input: Input, next: (input: Input) => Promise<unknown>): Promise<unknown> {
      const isLate = isFirst;
      isFirst = false;
      if (!gate) await pass();
      const ended = next(input);
      if (isLate) ended.then(end, end);
      return ended;
    },
  };
  installTemporalRuntime(createLogger('silent'));
  const connection = await NativeConnection.connect({ address: endpoints.temporalAddress! });
  const taskQueue = `late-${name}`;
  try {
    const worker = await Worker.create({
      ...{ connection, namespace: client.options.namespace, taskQueue, activities },
      workflowBundle: await bundleOf(WORKFLOWS),
      interceptors: {
        activity: [...attempts.interceptors, () => ({ inbound })],
      },
    });
    return await worker.runUntil(async () => {
      await client.workflow.execute('callOne', { args: [name, args], taskQueue, workflowId: taskQueue });
      await between();
      open();
      return late;
    });
  } finally {
    attempts.stop();
    await connection.close();
  }
}

/** What a late attempt ends with that has written nothing. */
export const REFUSED = { type: 'AttemptLate' };
