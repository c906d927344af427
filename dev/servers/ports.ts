import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import type { AddressInfo, Server } from 'node:net';
import { createServer } from 'node:net';

/** The only address embedded servers listen on: nothing of a laptop's stack is for the network. */
export const LOOPBACK = '127.0.0.1';

/** A port that a server is to listen on. */
export interface PortUse {
  /** 1 to 65535. */
  port: number;
  /** Who wants it, as shown in the error: `embedded Redis`. */
  name: string;
}

/** The stand-in routers, which take ports one after the other from the first one on. */
export const ROUTER_PORTS = [
  'messaging router 1',
  'messaging router 2',
  'notification router',
  'push provider',
] as const;

/**
 * Where {@link freePort} looks: below the ports that systems give to outgoing connections, and to programs that ask for
 * any port, as Temporal does for its inner services. One of those could be taken before the server listens on it.
 */
const [LOWEST_PORT, HIGHEST_PORT] = [10_000, 32_767];

/** Ports given out by {@link freePort}: their callers may not listen on them yet. */
const handedOut = new Set<number>();

/** Returns a loopback port that is free now and was not returned before by this process. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(LOWEST_PORT, HIGHEST_PORT + 1);
    if (!handedOut.has(port) && (await isPortFree(port))) {
      handedOut.add(port);
      return port;
    }
  }
}

/** Has a server listen on the loopback, on whatever port is free. @returns the port. */
export async function listen(server: Server): Promise<number> {
  await once(server.listen(0, LOOPBACK), 'listening');
  return (server.address() as AddressInfo).port;
}

/** Whether the loopback port can be listened on now. */
export const isPortFree = async (port: number): Promise<boolean> => (await refusal(port)) === undefined;

/**
 * Throws when the loopback port cannot be listened on, for example
 * `port 6379 for the embedded Redis is taken; set NOTIFICATION_DEV_BASE_PORT to use other ports`.
 */
export async function assertPortFree(port: number, name: string): Promise<void> {
  await assertPortsFree([{ port, name }]);
}

/** Like {@link assertPortFree} for several ports: one error names every port that is taken, a line each. */
export async function assertPortsFree(uses: readonly PortUse[]): Promise<void> {
  const problems: string[] = [];
  const wanted = new Set<number>();
  // One after the other, so that two checks of the same port do not find each other.
  for (const { port, name } of uses) {
    const reason = wanted.has(port) ? 'is wanted twice' : await refusal(port);
    wanted.add(port);
    if (reason)
      problems.push(
        `port ${port} for the ${name} ${reason}; set NOTIFICATION_DEV_BASE_PORT to use other ports`,
      );
  }
  if (problems.length > 0) throw new Error(problems.join('\n'));
}

async function refusal(port: number): Promise<string | undefined> {
  try {
    await listenOnce(port);
    return undefined;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code === 'EADDRINUSE' ? 'is taken' : `cannot be used (${code})`;
  }
}

/** Listens on the loopback port and closes again. */
function listenOnce(port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen({ port, host: LOOPBACK, exclusive: true }, () => server.close(() => resolve()));
  });
}
