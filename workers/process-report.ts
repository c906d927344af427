/**
 * What a process reports about its keys and its files of secrets and certificates: as gauges, and every half minute in
 * PostgreSQL, where the command line reads it. Reports count the seals of each key, and name missing keys and refused files.
 */
import type { Attributes, Meter } from '@opentelemetry/api';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { GaugeRead } from '../activities/gauges.ts';
import { gaugesOfRows, observeReads } from '../activities/gauges.ts';
import { query } from '../activities/postgres.ts';
import { reasonOf } from '../activities/reason.ts';
import { watchEvery } from '../activities/watch.ts';
import { certificateExpiries } from '../config/files.ts';
import type { ProcessContext } from './context.ts';
import type { KeyUse, MissingKey } from './key-use.ts';
import type { RefusedChange, Renewal } from './renewal.ts';
import { startRenewal } from './renewal.ts';

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
): { stop(): Promise<void> } {
  const note = (error: unknown) =>
    log.debug({ reason: reasonOf(error) }, 'report of the process not written');
  const reporting = watchEvery(everyMs, report, note);
  return { stop: () => reporting.stop().then(report).catch(note) };

  async function report(): Promise<void> {
    const { seals, missing } = keyUse.takeCounts();
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
      // The next report has both: seals are kept, and missing keys and refused files are found again.
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

/** Renews secrets and certificates from here on. Reports refused files to the command line, if there is a database. */
export function watchFiles(
  { config, log, meter, open, renewable, keyUse }: Omit<ProcessContext, 'endpoints' | 'draining'>,
  db: Pool | undefined,
): void {
  const renewal = startRenewal(config, renewable, { log });
  if (db) open.add('report of the process', startProcessReport({ db, log, keyUse }, renewal.refused).stop);
  open.add('gauges of files', observeFiles(meter, { log, renewal }));
  open.add('renewal of secrets', renewal.stop);
}

/** @returns ends the observation. */
export function observeFiles(
  meter: Meter,
  { log, renewal }: { log: Logger; renewal: Pick<Renewal, 'files' | 'refused'> },
): () => void {
  const expiry = 'Time until the first certificate of a variable expires; below zero when it has';
  const refusals = 'Files of secrets and certificates that have changed and could not be taken into use';
  return observeReads(meter, log, [
    readOf('notification.certificate.expires_in', { description: expiry, unit: 's' }, async () =>
      byVariable(certificateExpiries(renewal.files()), (files) =>
        Math.min(...files.map(({ expiresAt }) => (expiresAt - Date.now()) / 1_000)),
      ),
    ),
    readOf('notification.configuration.refused', { description: refusals }, async () =>
      byVariable(renewal.refused(), ({ length }) => length),
    ),
  ]);
}

/** A read of one gauge, which names it in the log as well. */
const readOf = (
  gauge: string,
  options: { description: string; unit?: string },
  read: () => Promise<{ value: number; attributes: Attributes }[]>,
): GaugeRead => ({
  what: gauge,
  gauges: { [gauge]: options },
  read: async () => (await read()).map((measured) => ({ gauge, ...measured })),
});

/** One measurement for each variable, which may name several files. */
const byVariable = <File extends { variable: string }>(
  files: readonly File[],
  valueOf: (files: File[]) => number,
) =>
  [...Map.groupBy(files, ({ variable }) => variable)].map(([variable, ofVariable]) => ({
    value: valueOf(ofVariable),
    attributes: { variable },
  }));

const SEALS = 'notification.keys.seals';

/** @returns ends the observation; call it before the connection is closed. */
export function observeKeySeals(meter: Meter, { db, log }: { db: Pool; log: Logger }): () => void {
  const description = 'Values and payloads sealed by all processes, ever, with the key that sealed last';
  const seals = gaugesOfRows(db, 'seals by key', { [SEALS]: { description } }, READ_KEY_SEALS);
  return observeReads(meter, log, [seals]);
}

/** Of each purpose the one in use: another one does not wear any more, however often it has sealed. */
const READ_KEY_SEALS = {
  name: 'read_key_seals',
  text: `
    SELECT DISTINCT ON (purpose) purpose, key_id AS key, seals::float8 AS "${SEALS}"
      FROM notification.key_seals
     ORDER BY purpose, last_sealed_at DESC`,
};

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
