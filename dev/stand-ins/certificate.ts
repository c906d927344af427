/** Certificates of TLS servers on the loopback, made at each start: no private key lies in the repository. */
import { generate } from 'selfsigned';
import { LOOPBACK } from '../servers/ports.ts';

/** What a TLS server and its clients need, PEM each. */
export interface LoopbackCertificate {
  keyPem: string;
  /** For the server, and as the authority that clients trust. */
  certPem: string;
}

const DAY_MS = 24 * 60 * 60 * 1_000;
/** Longer than any process that was started with it. */
const VALID_DAYS = 365;

/**
 * Makes a self-signed certificate.
 *
 * @param days that it is valid from now; default: a year.
 * @param host default: `127.0.0.1` and `localhost`.
 */
export async function createLoopbackCertificate(
  days = VALID_DAYS,
  host?: string,
): Promise<LoopbackCertificate> {
  const now = Date.now();
  const { private: keyPem, cert: certPem } = await generate(
    [{ name: 'commonName', value: 'galaxy-notify loopback' }],
    {
      keyType: 'ec',
      algorithm: 'sha256',
      notBeforeDate: new Date(now - DAY_MS),
      notAfterDate: new Date(now + days * DAY_MS),
      extensions: [
        {
          name: 'subjectAltName',
          altNames: [
            { type: 2, value: host ?? 'localhost' },
            ...(host === undefined ? [{ type: 7 as const, ip: LOOPBACK }] : []),
          ],
        },
      ],
    },
  );
  return { keyPem, certPem };
}
