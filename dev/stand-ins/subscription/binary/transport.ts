/** The binary protocol of routers, as the transport of stand-ins: SMP in versions 6 to 10, NTF in versions 1 and 2. */
import type { RouterTransport } from '../transport.ts';
import { createBinaryCertificate } from './certificates.ts';
import { startBinaryServer } from './router-server.ts';
import { MESSAGE_SEALS, PUSH_SEALS } from './seals.ts';
import { createSubscriberSessions } from './subscriber-sessions.ts';

export const BINARY: RouterTransport = {
  createCertificate: createBinaryCertificate,
  startServer: startBinaryServer,
  messageSeals: MESSAGE_SEALS,
  pushSeals: PUSH_SEALS,
  createSubscriberSessions,
};
