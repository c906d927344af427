/** One round of a measurement: so many workflows, from the first request to the last close, and what they cost. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from '@temporalio/client';
import type { Bench, CpuSeconds, Part } from './environment.ts';
import type { Times } from './orders.ts';
import { median } from './statistics.ts';

/** No round takes as long unless something is broken, ms. */
export const ROUND_LIMIT_MS = 3_600_000;
/**
 * Rare, because each look takes time from what is being measured, and only the service is looked at meanwhile: four a second
 * are 13 ms of CPU a second on slow cores. A round's end is told by when its workflows closed, not by when that was seen.
 */
export const LOOK_INTERVAL_MS = 1_000;

export interface Round {
  count: number;
  beganAtMs: number;
  seconds: number;
  perSecond: number;
  /** CPU time for each of the `count`, ms: of all servers, and of the process that works. Absent if not to be had. */
  cpuMs?: { server: number; worker: number; servers: CpuSeconds };
}

export interface RoundOptions {
  part: Part;
  workerPid: number;
  /** Of each of the `count` one must be closed in the end; absent where the work has no workflows. */
  workflowType?: string;
  count: number;
  /** Asks for the work. @returns when that began, ms since the epoch. */
  begin(): Promise<number>;
  /** Waits until the work has had its effect; then only workflows are left to be closed. */
  settled?(): Promise<void>;
}

/** @throws Error when not all of the workflows complete, or go on as another type, in time. */
export function runRound(bench: Bench, options: RoundOptions): Promise<Round> {
  const { part, workerPid, workflowType, count, begin, settled } = options;
  return measured(bench, { workerPid, count }, async () => {
    const beganAtMs = await begin();
    await settled?.();
    const endedAtMs =
      workflowType === undefined ? Date.now() : await lastClose(part.client, workflowType, beganAtMs, count);
    return { beganAtMs, elapsedMs: endedAtMs - beganAtMs };
  });
}

/** A round of anything that a process works on, and what it costs. @param run asks for it, and waits for its end. */
export async function measured(
  bench: Bench,
  { workerPid, count }: Pick<RoundOptions, 'workerPid' | 'count'>,
  run: () => Promise<Times>,
): Promise<Round> {
  const before = bench.cpu(workerPid);
  const { beganAtMs, elapsedMs } = await run();
  const after = bench.cpu(workerPid);
  const seconds = elapsedMs / 1_000;
  return {
    count,
    beganAtMs,
    seconds,
    perSecond: count / seconds,
    ...(before && after ? { cpuMs: costOf(before, after, count) } : {}),
  };
}

function costOf(before: CpuSeconds, after: CpuSeconds, count: number): NonNullable<Round['cpuMs']> {
  const spent = (name: keyof CpuSeconds) => after[name] - before[name];
  const servers = {
    temporal: spent('temporal'),
    postgres: spent('postgres'),
    redis: spent('redis'),
    worker: spent('worker'),
  };
  const server = servers.temporal + servers.postgres + servers.redis;
  return { server: (1_000 * server) / count, worker: (1_000 * servers.worker) / count, servers };
}

/**
 * Waits until so many workflows have completed since a moment. Visibility is a second late, its times are not.
 *
 * @returns when the last of them closed, ms since the epoch.
 */
async function lastClose(client: Client, type: string, sinceMs: number, count: number): Promise<number> {
  const since = new Date(sinceMs).toISOString();
  const query = `WorkflowType = '${type}' AND ExecutionStatus = 'Completed' AND StartTime >= '${since}'`;
  await until(`${count} workflows ${type} to be completed`, LOOK_INTERVAL_MS, async () => {
    const { count: found } = await client.workflow.count(query);
    return found >= count;
  });
  let last = 0;
  for await (const { closeTime } of client.workflow.list({ query, pageSize: 1_000 })) {
    last = Math.max(last, closeTime?.getTime() ?? 0);
  }
  return last;
}

/** Looks at intervals until something holds. @throws Error after the limit of a round. */
export async function until(
  what: string,
  intervalMs: number,
  isSo: () => Promise<boolean> | boolean,
): Promise<void> {
  const deadline = Date.now() + ROUND_LIMIT_MS;
  while (!(await isSo())) {
    if (Date.now() > deadline) throw new Error(`waited ${ROUND_LIMIT_MS / 1_000} s in vain for ${what}`);
    await sleep(intervalMs);
  }
}

/** Runs one round of each in turn, A B C A B C …, so that what disturbs the machine disturbs all of them. */
export async function interleave<Name extends string, R extends Pick<Round, 'perSecond'>>(
  rounds: number,
  shapes: Readonly<Record<Name, () => Promise<R>>>,
  report: (line: string) => void,
): Promise<Record<Name, R[]>> {
  const names = Object.keys(shapes) as Name[];
  const found = Object.fromEntries(names.map((name) => [name, [] as R[]])) as Record<Name, R[]>;
  for (let round = 1; round <= rounds; round += 1) {
    for (const name of names) {
      const result = await shapes[name]();
      report(`Round ${round} of ${rounds}: ${name} ${result.perSecond.toPrecision(3)}/s`);
      found[name].push(result);
    }
  }
  return found;
}

/** A row's value and raw rounds, from one number of each round. */
export const medianOf = (row: string, rounds: readonly number[]) => ({ row, value: median(rounds), rounds });
