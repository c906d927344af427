/**
 * What a process tells the command line through PostgreSQL, every half minute: what it has sealed with each key, keys that
 * it misses, and files that it could not take into use.
 */
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { query } from '../activities/postgres.ts';
import { reasonOf } from '../activities/reason.ts';
import { watchEvery } from '../activities/watch.ts';
import type { KeyUse, MissingKey } from './key-use.ts';
import type { RefusedChange } from './renewal.ts';
import type { Running } from './role.ts';

const EVERY_MS = 30_000;

interface Finding {
  kind: 'file_refused' | 'key_missing';
  name: string;
  detail: string;
}

/** Reports until it is stopped, and once more then. */
export function startProcessReport(
  { db, log, keyUse }: { db: Pool; log: Logger; keyUse: KeyUse },
  refused: () => RefusedChange[],
  everyMs = EVERY_MS,
): Running {
  const note = (error: unknown) =>
    log.debug({ reason: reasonOf(error) }, 'report of the process not written');
  const reporting = watchEvery(everyMs, report, note);
  return { stop: () => reporting.stop().then(report).catch(note) };

  async function report(): Promise<void> {
    const { seals, missing } = keyUse.take();
    const findings = [...refused().map(ofFile), ...missing.map(ofKey)];
    try {
      if (seals.length > 0) {
        await query(db, ADD_KEY_SEALS, [
          seals.map(({ purpose }) => purpose),
          seals.map(({ keyId }) => keyId),
          seals.map((of) => of.seals),
        ]);
      }
      if (findings.length > 0) await query(db, RECORD_FINDINGS, columnsOf(findings));
    } catch (error) {
      // Both are told again: seals are kept, and what is missing or refused is met again.
      keyUse.putBack(seals);
      throw error;
    }
  }
}

const ofFile = ({ variable, path, reason }: RefusedChange): Finding => ({
  kind: 'file_refused',
  name: variable,
  detail: `${path}: ${reason}`,
});

const ofKey = ({ purpose, keyId, of }: MissingKey): Finding => ({
  kind: 'key_missing',
  name: `${purpose} ${keyId}`,
  detail: of ?? '',
});

/** One row for a name: a statement must not touch a row twice. */
function columnsOf(findings: readonly Finding[]): string[][] {
  const byName = [
    ...new Map(findings.map((finding) => [`${finding.kind} ${finding.name}`, finding])).values(),
  ];
  return [
    byName.map(({ kind }) => kind),
    byName.map(({ name }) => name),
    byName.map(({ detail }) => detail.replaceAll('\0', '').slice(0, 1_000)),
  ];
}

const ADD_KEY_SEALS = {
  name: 'add_key_seals',
  text: `
    INSERT INTO notification.key_seals AS known (purpose, key_id, seals, last_sealed_at)
    SELECT purpose, key_id, seals, clock_timestamp()
      FROM unnest($1::text[], $2::text[], $3::bigint[]) AS added (purpose, key_id, seals)
     ORDER BY purpose, key_id
        ON CONFLICT (purpose, key_id) DO UPDATE
       SET seals = known.seals + excluded.seals, last_sealed_at = excluded.last_sealed_at`,
};

const RECORD_FINDINGS = {
  name: 'record_process_findings',
  text: `
    INSERT INTO notification.process_findings AS known (kind, name, detail, first_seen_at, last_seen_at)
    SELECT kind, name, detail, clock_timestamp(), clock_timestamp()
      FROM unnest($1::text[], $2::text[], $3::text[]) AS seen (kind, name, detail)
     ORDER BY kind, name
        ON CONFLICT (kind, name) DO UPDATE
       SET detail = excluded.detail, last_seen_at = excluded.last_seen_at,
           first_seen_at = CASE WHEN known.last_seen_at < excluded.last_seen_at - interval '1 hour'
                                THEN excluded.first_seen_at ELSE known.first_seen_at END`,
};
