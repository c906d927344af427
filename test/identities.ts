/** Certificates of servers and clients, good ones and such that must not be taken. */
import type { LoopbackCertificate } from '../dev/stand-ins/certificate.ts';
import { createLoopbackCertificate } from '../dev/stand-ins/certificate.ts';

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
    expired: await createLoopbackCertificate(-0.5),
    ofAnotherName: await createLoopbackCertificate(30, 'elsewhere.internal'),
  };
}
