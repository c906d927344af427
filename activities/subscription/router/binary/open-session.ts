/** How a session with a router begins: TLS, then a hello of each side. */
import type { RouterProtocol } from '../../../../api/subscription/router-wire.ts';
import type { RouterAddress } from '../ports.ts';
import type { ConnectOptions, Connection } from './connect.ts';
import { ConnectError, connectToRouter } from './connect.ts';
import { MalformedError, padBlock, unpadBlock } from './encoding.ts';
import { VersionError, agreedVersion, encodeHello, readHello, readSessionKey } from './handshake.ts';
import type { RouterSession, SessionOptions } from './session.ts';
import { beginSession } from './session.ts';
import type { SessionBinding } from './transmissions.ts';
import { PROTOCOLS } from './versions.ts';

/** @throws ConnectError */
export async function openSession(
  protocol: RouterProtocol,
  address: RouterAddress,
  options: SessionOptions,
): Promise<RouterSession> {
  const { connection, binding, routerVersions } = await greetRouter(protocol, address, options);
  return beginSession(protocol, connection, binding, routerVersions, options);
}

interface Greeted {
  connection: Connection;
  binding: SessionBinding;
  routerVersions: [oldest: number, newest: number];
}

/**
 * Both sides have said hello: what follows on the connection are blocks of transmissions.
 *
 * @throws ConnectError
 */
export function greetRouter(
  protocol: RouterProtocol,
  address: RouterAddress,
  options: ConnectOptions,
): Promise<Greeted> {
  return connectToRouter(address, PROTOCOLS[protocol], options, async (connection) => {
    try {
      return { connection, ...(await shakeHands(protocol, address, connection)) };
    } catch (error) {
      if (error instanceof MalformedError) throw new ConnectError('RESPONSE', error.message);
      if (error instanceof VersionError) throw new ConnectError('VERSION', error.message);
      throw error;
    }
  });
}

async function shakeHands(
  protocol: RouterProtocol,
  { keyHash }: RouterAddress,
  { socket, chain, hasAlpn }: Connection,
): Promise<Omit<Greeted, 'connection'>> {
  const facts = PROTOCOLS[protocol];
  const hello = readHello(unpadBlock(await firstBlock(socket, facts.blockBytes), true));
  if (socket.getFinished()?.equals(hello.sessionId) !== true) {
    throw new MalformedError('the hello is of another TLS session');
  }
  const version = agreedVersion(hello, facts, hasAlpn);
  const routerKey =
    version < facts.sessionKey
      ? undefined
      : readSessionKey(hello, { hasCertificates: protocol === 'smp', certificates: chain });
  socket.write(padBlock(encodeHello(version, Buffer.from(keyHash, 'base64url')), facts.blockBytes));
  return {
    binding: { facts, version, id: hello.sessionId, routerKey },
    routerVersions: [hello.oldest, hello.newest],
  };
}

/** It may come in as many parts as a router likes. @throws ConnectError when it does not come. */
function firstBlock(socket: Connection['socket'], blockBytes: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const closed = (): void =>
      settle(() => reject(new ConnectError('NETWORK', 'the connection was closed before the hello')));
    const failed = (error: Error): void => settle(() => reject(error));
    function look(): void {
      const block = socket.read(blockBytes) as Buffer | null;
      if (block?.length === blockBytes) settle(() => resolve(block));
      // The rest, after which nothing comes.
      else if (block) closed();
    }
    function settle(how: () => void): void {
      socket.off('readable', look).off('close', closed).off('error', failed);
      how();
    }
    socket.on('readable', look).on('close', closed).on('error', failed);
    if (socket.destroyed) closed();
    else look();
  });
}
