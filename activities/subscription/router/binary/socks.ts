/** A connection through a SOCKS5 proxy (RFC 1928) that asks for no password. The proxy resolves the name. */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { connect } from 'node:net';

const VERSION = 5;
const NO_PASSWORD = 0;
const CONNECT = 1;
const DOMAIN_NAME = 3;
/** Bytes behind the type of an address in an answer; a name has its length before it. */
const ADDRESS_BYTES: Readonly<Record<number, number>> = { 1: 4, 4: 16 };
const PORT_BYTES = 2;

/** @throws Error when the proxy does not lead there, or the signal comes first. */
export async function connectThroughSocks(
  proxy: { host: string; port: number },
  { host, port }: { host: string; port: number },
  signal: AbortSignal,
): Promise<Socket> {
  const socket = connect(proxy);
  try {
    await once(socket, 'connect', { signal });
    socket.write(Buffer.from([VERSION, 1, NO_PASSWORD]));
    const [version, method] = await readBytes(socket, 2, signal);
    if (version !== VERSION || method !== NO_PASSWORD) throw new Error('the proxy wants a password');
    const name = Buffer.from(host, 'ascii');
    const request = Buffer.from([VERSION, CONNECT, 0, DOMAIN_NAME, name.length]);
    socket.write(Buffer.concat([request, name, Buffer.from([port >> 8, port & 0xff])]));
    const [, reply, , type] = await readBytes(socket, 4, signal);
    if (reply !== 0) throw new Error(`the proxy refused with ${reply}`);
    const length = ADDRESS_BYTES[type!] ?? (await readBytes(socket, 1, signal))[0]!;
    await readBytes(socket, length + PORT_BYTES, signal);
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

async function readBytes(socket: Socket, length: number, signal: AbortSignal): Promise<Buffer> {
  for (;;) {
    const bytes = socket.read(length) as Buffer | null;
    if (bytes?.length === length) return bytes;
    if (bytes || socket.readableEnded) throw new Error('the proxy closed the connection');
    await Promise.race([once(socket, 'readable', { signal }), once(socket, 'end', { signal })]);
  }
}
