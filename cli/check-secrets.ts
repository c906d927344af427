/** What can be wrong with encryption: connections and certificates. */
import type { CertificateExpiry } from '../config/files.ts';
import { certificateExpiries } from '../config/files.ts';
import type { Config } from '../config/load.ts';
import { openWires, wireProblems } from '../config/wire.ts';
import type { Check, Diagnosis } from './checks.ts';
import { error, ok, warn, warnIf } from './checks.ts';
import { countOf, durationOf } from './output.ts';

const DAY_MS = 86_400_000;
const SOON_MS = 14 * DAY_MS;

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
