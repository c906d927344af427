/** How a session with a router begins: TLS, then a hello of each side. */
import { once } from 'node:events';
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

/**
 * Both sides have said hello: what follows on the connection are blocks of transmissions.
 *
 * @throws ConnectError
 */
export async function greetRouter(
  protocol: RouterProtocol,
  address: RouterAddress,
  options: ConnectOptions,
): Promise<{ connection: Connection; binding: SessionBinding; routerVersions: [number, number] }> {
  const connection = await connectToRouter(address, PROTOCOLS[protocol], options);
  try {
    return { connection, ...(await shakeHands(protocol, address, connection, options.timeoutMs)) };
  } catch (error) {
    connection.socket.destroy();
    if (error instanceof MalformedError) throw new ConnectError('RESPONSE', error.message);
    if (error instanceof VersionError) throw new ConnectError('VERSION', error.message);
    throw error;
  }
}

async function shakeHands(
  protocol: RouterProtocol,
  { keyHash }: RouterAddress,
  { socket, chain, hasAlpn }: Connection,
  timeoutMs: number,
): Promise<{ binding: SessionBinding; routerVersions: [number, number] }> {
  const facts = PROTOCOLS[protocol];
  const hello = readHello(unpadBlock(await firstBlock(socket, facts.blockBytes, timeoutMs), true));
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

/** @throws ConnectError when it does not come. */
async function firstBlock(
  socket: Connection['socket'],
  blockBytes: number,
  timeoutMs: number,
): Promise<Buffer> {
  const signal = AbortSignal.timeout(timeoutMs);
  for (;;) {
    const block = socket.read(blockBytes) as Buffer | null;
    if (block?.length === blockBytes) return block;
    if (block || socket.destroyed || socket.readableEnded) {
      throw new ConnectError('NETWORK', 'the connection was closed before the hello');
    }
    await Promise.race([once(socket, 'readable', { signal }), once(socket, 'close', { signal })]).catch(
      () => {
        if (signal.aborted) throw new ConnectError('NETWORK', 'no hello in time');
      },
    );
  }
}
