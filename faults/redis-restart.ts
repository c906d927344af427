/**
 * A restart of Redis that loses nothing, under 50 push events a second and with the default length of their stream. While
 * the service finds out whether the streams have lost something, more push events come than the stream keeps: those that
 * it trims must not be handed off again.
 */
import { writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { entryFieldsOf, envelopeOf } from '../api/intent/entry.ts';
import { sampleIntentOf } from '../client/testing.ts';
import { GALAXY } from '../client/generated/galaxy.ts';
import { repairWorkflowId } from '../workflows/recovery-contract.ts';
import { openConsumers } from './consumers.ts';
import { withOneService } from './one-service.ts';
import type { Options } from './options.ts';
import { machineOf } from './report.ts';

const INTENTS = 'notification:intents';
const GATEWAY = 'gateway:client-events';
/** Default length of the stream of push events: a run proves nothing if fewer came while the service had its doubts. */
const KEPT = 1_024;
/** Each has two recipients: so many push events a second, and so many e-mails. */
const INTENTS_PER_SECOND = 25;
const RECIPIENTS = 2;
const BEFORE_S = 10;
/** Longer than the service takes to settle a suspicion, 30 s. */
const AFTER_S = 50;
/** Until all is handed off and the streams are trusted again, s. */
const END_LIMIT_S = 600;

/** @returns whether a consumer that follows the streams saw each message once. */
export async function restartRedis(options: Options, report: (line: string) => void): Promise<boolean> {
  return withOneService(options, report, async ({ servers, connections, service }) => {
    const { redis, openRedis, db, temporal } = connections;
    const consumers = openConsumers(openRedis, () => undefined);
    let published = 0;
    await publishFor(BEFORE_S);
    report('Redis is killed, and started again with all that it had');
    await servers.redis.now().kill();
    await servers.redis.now().start();
    const seenBefore = consumers.sightings().length;
    await publishFor(AFTER_S);
    for (let left = END_LIMIT_S; left > 0 && !(await isOver()); left -= 1) await sleep(1_000);
    const handedOff = await countPublished();
    await consumers.catchUp();
    await consumers.stop();
    const sightings = consumers.sightings();
    const ids = sightings.map(({ fields }) =>
      fields.find(([name]) => name === 'event_id' || name === 'delivery_id')![1].toString(),
    );
    const seen = new Set(ids).size;
    const result = {
      date: new Date().toISOString(),
      machine: machineOf(),
      messages: published * RECIPIENTS * 2,
      seenBeforeRestart: seenBefore,
      unfinished: published * RECIPIENTS * 2 - handedOff,
      lost: handedOff - seen,
      doubled: ids.length - seen,
      keptPushEvents: await redis.xlen(GATEWAY),
      check: await checkOfPushEvents(),
      crashes: service.crashes,
    };
    const isGood =
      result.unfinished === 0 &&
      result.lost === 0 &&
      result.doubled === 0 &&
      result.check.status === 'COMPLETED' &&
      result.check.handedOffMeanwhile > KEPT &&
      service.crashes.length === 0;
    const text = `${JSON.stringify({ ...result, isGood }, null, 2)}\n`;
    process.stdout.write(text);
    if (options.jsonFile !== undefined) writeFileSync(options.jsonFile, text);
    return isGood;

    async function publishFor(seconds: number): Promise<void> {
      const startedAt = performance.now();
      for (let index = 0; index < seconds * INTENTS_PER_SECOND; index += 1) {
        await sleep(Math.max(0, startedAt + (index * 1_000) / INTENTS_PER_SECOND - performance.now()));
        const intent = sampleIntentOf(GALAXY, 'game.turn.ready', 'user', `restart/${published}`);
        await redis.xadd(INTENTS, '*', ...entryFieldsOf(envelopeOf(intent)).flat());
        published += 1;
      }
    }

    /** The service's check of the push events, which a suspicion starts, and what was handed off meanwhile. */
    async function checkOfPushEvents() {
      const { status, startTime, closeTime } = await temporal.workflow
        .getHandle(repairWorkflowId(GATEWAY))
        .describe();
      const { rows } = await db.query<{ count: number }>(
        `SELECT count(*)::int AS count FROM notification.routes
          WHERE channel = 'push' AND published_at BETWEEN $1 AND $2`,
        [startTime, closeTime ?? new Date()],
      );
      return { status: status.name, handedOffMeanwhile: rows[0]!.count };
    }

    async function isOver(): Promise<boolean> {
      const { rowCount } = await db.query(
        'SELECT FROM notification.outbound_streams WHERE suspect_since IS NOT NULL',
      );
      return rowCount === 0 && (await countPublished()) === published * RECIPIENTS * 2;
    }

    async function countPublished(): Promise<number> {
      const { rows } = await db.query<{ count: number }>(
        "SELECT count(*)::int AS count FROM notification.routes WHERE status = 'published'",
      );
      return rows[0]!.count;
    }
  });
}
