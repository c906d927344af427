/** Certificates of servers and clients, good ones and such that must not be taken. */
import { generate } from 'selfsigned';
import type { LoopbackCertificate } from '../dev/stand-ins/certificate.ts';
import { createLoopbackCertificate } from '../dev/stand-ins/certificate.ts';

const DAY_MS = 86_400_000;

/** Each is its own authority. */
export interface Certificates {
  own: LoopbackCertificate;
  /** Like `own`, of another installation. */
  foreign: LoopbackCertificate;
  expired: LoopbackCertificate;
  /** Of a host that is not the loopback. */
  ofAnotherName: LoopbackCertificate;
}

export async function createCertificates(): Promise<Certificates> {
  return {
    own: await createLoopbackCertificate(),
    foreign: await createLoopbackCertificate(),
    expired: await certificate('127.0.0.1', -1),
    ofAnotherName: await certificate('elsewhere.internal', 30),
  };
}

async function certificate(host: string, days: number): Promise<LoopbackCertificate> {
  const { private: keyPem, cert: certPem } = await generate([{ name: 'commonName', value: host }], {
    ...{ keyType: 'ec', algorithm: 'sha256' },
    notBeforeDate: new Date(Date.now() - 30 * DAY_MS),
    notAfterDate: new Date(Date.now() + days * DAY_MS),
    extensions: [
      {
        name: 'subjectAltName',
        altNames: [
          ...(host === '127.0.0.1' ? [{ type: 7 as const, ip: host }] : []),
          { type: 2 as const, value: host === '127.0.0.1' ? 'localhost' : host },
        ],
      },
    ],
  });
  return { keyPem, certPem };
}
