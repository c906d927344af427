/**
 * A flood: 100,000 entries come in while Temporal is down. What waits, waits in Redis: the memory of the service stays
 * where it was, and when Temporal is back the entries are taken one batch after the other.
 */
import { writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { memoryMbOf } from '../bench/processes.ts';
import { entryFieldsOf, envelopeOf } from '../api/intent/entry.ts';
import { sampleIntentOf } from '../client/testing.ts';
import { GALAXY } from '../client/generated/galaxy.ts';
import type { Options } from './options.ts';
import { machineOf } from './report.ts';
import { withOneService } from './one-service.ts';

const ENTRIES = 100_000;
const BATCH = 1_000;
/** How long the service sits before the flood, with Temporal down, and how many entries it must take after it. */
const DOWN_MS = 30_000;
const TAKEN_AFTERWARDS = 2_000;
const TAKEN_LIMIT_MS = 240_000;
/** What the resident set may grow by, MB: far below what 100,000 entries would take. */
const MOST_GROWTH_MB = 150;
const INTENTS = 'notification:intents';
const OFFSET_KEY = `notification:stream_offsets:${Buffer.from(INTENTS).toString('base64url')}`;

/** @returns whether memory stayed within its bound and intake went on afterwards. */
export async function flood(options: Options, report: (line: string) => void): Promise<boolean> {
  return withOneService(options, report, async ({ servers, connections, service }) => {
    const { redis } = connections;
    // Warm: the first intents load and compile what there is.
    await publish(0, 200);
    await passed(200, TAKEN_LIMIT_MS);
    const beforeMb = memoryMbOf(service.pid!) ?? 0;
    let highestMb = beforeMb;
    const sampler = setInterval(() => (highestMb = Math.max(highestMb, memoryMbOf(service.pid!) ?? 0)), 200);
    await servers.temporal.now().kill();
    report(`Temporal is down; publishing ${ENTRIES} entries`);
    const startedAt = Date.now();
    for (let index = 0; index < ENTRIES; index += BATCH) await publish(200 + index, BATCH);
    const publishedMs = Date.now() - startedAt;
    await sleep(Math.max(0, DOWN_MS - publishedMs));
    const downMb = highestMb;
    report(`Resident: ${beforeMb.toFixed(0)} MB before, at most ${downMb.toFixed(0)} MB while it was down`);
    await servers.temporal.now().start();
    await passed(200 + TAKEN_AFTERWARDS, TAKEN_LIMIT_MS);
    clearInterval(sampler);
    report(`${TAKEN_AFTERWARDS} entries were taken since it is back; at most ${highestMb.toFixed(0)} MB`);
    const growthMb = highestMb - beforeMb;
    const isGood = growthMb <= MOST_GROWTH_MB && service.crashes.length === 0;
    const result = {
      date: new Date().toISOString(),
      machine: machineOf(),
      entries: ENTRIES,
      beforeMb: Math.round(beforeMb),
      highestWhileDownMb: Math.round(downMb),
      highestMb: Math.round(highestMb),
      growthMb: Math.round(growthMb),
      mostGrowthMb: MOST_GROWTH_MB,
      crashes: service.crashes,
      isGood,
    };
    process.stdout.write(`${JSON.stringify(result, null, 2)}\n`);
    if (options.jsonFile !== undefined)
      writeFileSync(options.jsonFile, `${JSON.stringify(result, null, 2)}\n`);
    return isGood;

    async function publish(from: number, count: number): Promise<void> {
      const pipeline = redis.pipeline();
      for (let index = from; index < from + count; index += 1) {
        const intent = sampleIntentOf(GALAXY, 'game.turn.ready', 'user', `flood/${index}`);
        pipeline.xadd(INTENTS, '*', ...entryFieldsOf(envelopeOf(intent)).flat());
      }
      await pipeline.exec();
    }

    /** Waits until the reader has passed so many entries. */
    async function passed(count: number, limitMs: number): Promise<void> {
      const deadline = Date.now() + limitMs;
      for (;;) {
        const offset = await redis.get(OFFSET_KEY);
        const left = await redis.xrange(INTENTS, `(${offset ?? '0-0'}`, '+', 'COUNT', 1);
        const taken = offset === null ? 0 : (await redis.xrange(INTENTS, '-', offset, 'COUNT', count)).length;
        if (taken >= count || (left.length === 0 && taken > 0)) return;
        if (Date.now() > deadline) throw new Error(`the reader passed ${taken} of ${count} entries in time`);
        await sleep(500);
      }
    }
  });
}
