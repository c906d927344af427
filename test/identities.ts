/** Certificates of a server or a client, a good one and such that must not be taken. Each is its own authority. */
import { createLoopbackCertificate } from '../dev/stand-ins/certificate.ts';
import { ofTests } from './of-tests.ts';

/** Those of a file of tests. */
export const certificatesOfTests = () =>
  ofTests(async () => ({
    own: await createLoopbackCertificate(),
    /** Like `own`, of another installation. */
    foreign: await createLoopbackCertificate(),
    expired: await createLoopbackCertificate(-0.5),
    /** Of a host that is not the loopback. */
    ofAnotherName: await createLoopbackCertificate(30, 'elsewhere.internal'),
  }));
