/** Gauges about the files of secrets and certificates: when certificates expire, and what was not taken into use. */
import type { Meter } from '@opentelemetry/api';
import type { Logger } from 'pino';
import { gaugeRead, observeReads } from '../activities/gauges.ts';
import { certificateExpiries } from '../config/certificates.ts';
import type { Renewal } from './renewal.ts';

const EXPIRES_IN = 'notification.certificate.expires_in';
const REFUSED = 'notification.configuration.refused';

/** @returns ends the observation. */
export function observeFiles(
  meter: Meter,
  { log, renewal }: { log: Logger; renewal: Pick<Renewal, 'files' | 'refused'> },
): () => void {
  const certificates = gaugeRead({
    what: 'expiry of certificates',
    gauges: {
      [EXPIRES_IN]: {
        description: 'Time until the first certificate of a variable expires; below zero when it has',
        unit: 's',
      },
    },
    async read() {
      const expiries = certificateExpiries(renewal.files()).map(
        ({ variable, expiresAt }) => [variable, (expiresAt - Date.now()) / 1_000] as const,
      );
      return measured(EXPIRES_IN, expiries, Math.min);
    },
  });
  const refused = gaugeRead({
    what: 'files that are not taken into use',
    gauges: {
      [REFUSED]: {
        description: 'Files of secrets and certificates that have changed and could not be taken into use',
      },
    },
    async read() {
      const ones = renewal.refused().map(({ variable }) => [variable, 1] as const);
      return measured(REFUSED, ones, (a, b) => a + b);
    },
  });
  return observeReads(meter, log, [certificates, refused]);
}

/** One measurement for each variable, which may name several files. */
function measured<Gauge extends string>(
  gauge: Gauge,
  values: readonly (readonly [variable: string, value: number])[],
  both: (a: number, b: number) => number,
) {
  const byVariable = new Map<string, number>();
  for (const [variable, value] of values) {
    const known = byVariable.get(variable);
    byVariable.set(variable, known === undefined ? value : both(known, value));
  }
  return [...byVariable].map(([variable, value]) => ({ gauge, value, attributes: { variable } }));
}
