/** How far a reader is, reported with a heartbeat every second for as long as it works. */
import { Context } from '@temporalio/activity';
import type { Redis } from 'ioredis';
import type { BridgeProgress, StreamFinding, StreamState } from '../../workflows/intent/reader-contract.ts';
import { oldestUnprocessedAgeMs } from './stream-lag.ts';
import type { StreamPosition } from './stream-position.ts';
import { loadPosition } from './stream-position.ts';

const HEARTBEAT_INTERVAL_MS = 1_000;

/** Written by the reading loop alone; heartbeats only show it. */
export interface Progress extends StreamPosition {
  started: number;
  malformed: number;
  findings: StreamFinding[];
  seen: StreamState | undefined;
}

/** Loads where the last reader was, and reports from there on. Call `stopReporting` at the end. */
export async function startProgress(
  redis: Redis,
  stream: string,
): Promise<{ progress: Progress; stopReporting: () => void }> {
  const activity = Context.current();
  const position = await loadPosition(redis, stream);
  const seen = (activity.info.heartbeatDetails as BridgeProgress | undefined)?.seen;
  const progress: Progress = { ...position, started: 0, malformed: 0, findings: [], seen };
  let handledBefore = 0;
  const report = async (): Promise<void> => {
    const handled = progress.started + progress.malformed;
    const rate = Math.round((handled - handledBefore) / (HEARTBEAT_INTERVAL_MS / 1_000));
    handledBefore = handled;
    // A Redis that does not answer fails the read itself; the heartbeat only leaves the figure out.
    const lagMs = await oldestUnprocessedAgeMs(redis, stream, progress.offset, Date.now()).catch(() => -1);
    activity.heartbeat(reportOf(stream, progress, lagMs, rate));
  };
  await report();
  const timer = setInterval(() => void report(), HEARTBEAT_INTERVAL_MS);
  return { progress, stopReporting: () => clearInterval(timer) };
}

function reportOf(stream: string, progress: Progress, lagMs: number, rate: number): BridgeProgress {
  const { offset, started, malformed, findings, seen } = progress;
  return { stream, offset, lagMs, rate, started, malformed, findings, ...(seen ? { seen } : {}) };
}
