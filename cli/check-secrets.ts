/** What can be wrong with encryption: connections, secrets, certificates and keys. */
import type { Pool } from 'pg';
import type { CertificateExpiry } from '../config/files.ts';
import { certificateExpiries } from '../config/files.ts';
import type { Config } from '../config/load.ts';
import { openWires, wireProblems } from '../config/wire.ts';
import type { Check, Diagnosis } from './checks.ts';
import { error, ok, rowCheck, warn, warnIf } from './checks.ts';
import { countOf, durationOf } from './output.ts';

const DAY_MS = 86_400_000;
const SOON_MS = 14 * DAY_MS;
/** Processes say every half minute what they cannot take into use. */
const REFUSED_SINCE = '2 minutes';
/** Work that misses a key is tried again after up to ten minutes. */
const MISSED_SINCE = '15 minutes';
/** AES-GCM with random nonces is safe for twice as many. */
const MOST_SEALS = 2 ** 31;

/** One check for each file with certificates. */
export function certificateChecks({ files }: Config): Check[] {
  return certificateExpiries(files).map((expiry) => [
    `certificate: ${expiry.variable}`,
    () => expiryOf(expiry, Date.now()),
  ]);
}

/** @param now ms since the epoch. */
export function expiryOf({ variable, path, expiresAt }: CertificateExpiry, now: number): Diagnosis {
  const leftMs = expiresAt - now;
  const date = new Date(expiresAt).toISOString();
  const what = `replace ${path}, which ${variable} names; processes take it into use by themselves`;
  if (leftMs <= 0) return error(`expired ${durationOf(-leftMs)} ago, ${date}: ${path}`, what);
  const detail = `expires in ${durationOf(leftMs)}, ${date}: ${path}`;
  return warnIf(leftMs < SOON_MS, detail, what);
}

/** Of what processes have told. */
export const processChecks = (db: Pool): Check[] => [
  rowCheck(db, 'processes: files of secrets', findings('file_refused', REFUSED_SINCE), (found: Finding[]) =>
    found.length === 0
      ? ok('processes use what is in them')
      : error(
          found
            .map(({ name, detail, since }) => `${name} since ${since.toISOString()}, ${detail}`)
            .join('; '),
          'processes keep the old values until the files are right, and the servers accept what is in them',
        ),
  ),
  rowCheck(db, 'processes: keys', findings('key_missing', MISSED_SINCE), (found: Finding[]) =>
    found.length === 0
      ? ok('none is missing')
      : error(
          found.map(({ name, detail }) => `${name}, for ${detail || 'a payload'}`).join('; '),
          'put the key back behind the first one; galaxy-notify keys status says what is sealed with it',
        ),
  ),
  rowCheck(db, 'keys: seals', SEALS, (keys: SealsRow[]) => {
    const worn = keys.filter(({ seals }) => seals > MOST_SEALS);
    if (worn.length === 0) return ok(`${countOf(keys.length, 'key')} in use, none of them too often`);
    return warn(
      worn.map(({ purpose, key, seals }) => `${purpose} ${key} has sealed ${seals} times`).join('; '),
      'put a new key first; then galaxy-notify keys renew',
    );
  }),
];

interface Finding {
  name: string;
  detail: string;
  since: Date;
}

const findings = (kind: string, within: string): string => `
  SELECT name, detail, first_seen_at AS since
    FROM notification.process_findings
   WHERE kind = '${kind}' AND last_seen_at > clock_timestamp() - interval '${within}'
   ORDER BY name
   LIMIT 20`;

interface SealsRow {
  purpose: string;
  key: string;
  seals: number;
}

/** Of each purpose the key in use: another one does not wear any more. */
const SEALS = `
  SELECT DISTINCT ON (purpose) purpose, key_id AS key, seals::float8 AS seals
    FROM notification.key_seals
   ORDER BY purpose, last_sealed_at DESC`;

/** Whether connections are encrypted, and both ends proven. */
export const wireCheck = (config: Pick<Config, 'production' | 'wires'>): Check => [
  'connections',
  () => diagnosisOf(config),
];

function diagnosisOf({ production, wires }: Pick<Config, 'production' | 'wires'>): Diagnosis {
  const open = openWires(wires);
  const counted = `${open.length} of ${countOf(wires.length, 'connection')}`;
  const unneeded = wires.flatMap(({ gaps, isAllowed, connection }) =>
    isAllowed && gaps.length === 0 && connection !== undefined ? [connection] : [],
  );
  const problems = wireProblems(wires);
  if (production && problems.length > 0) {
    return error(`${counted} open: the service refuses to start`, problems.join('; '));
  }
  if (open.length > 0 && production) {
    return warn(
      `${counted} open, by NOTIFICATION_INSECURE=${open.map(({ connection }) => connection).join(',')}`,
      open.flatMap(({ gaps }) => gaps).join('; '),
    );
  }
  if (open.length > 0) {
    return ok(`${counted} open, which production refuses: ${open.map(({ name }) => name).join(', ')}`);
  }
  return warnIf(
    unneeded.length > 0,
    'all are encrypted and proven',
    `take ${unneeded.join(', ')} out of NOTIFICATION_INSECURE: nothing needs it any more`,
  );
}
