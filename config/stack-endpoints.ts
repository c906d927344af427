/**
 * Where the embedded servers listen: a file in their data directory, written when the stack has started and deleted
 * when it stops, so that the CLI finds a running `npm start` without being configured.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { RouterAddress } from '../api/subscription/router-address.ts';

const ENDPOINTS_FILE = 'endpoints.json';

/** Addresses of the servers that are embedded; servers that were configured elsewhere are absent. */
export interface StackEndpoints {
  /** `host:port`. */
  redisAddr?: string;
  postgresDsn?: string;
  /** `host:port`. */
  temporalAddress?: string;
  uiUrl?: string;
  userServiceUrl?: string;
  /** The stand-in routers, with the fingerprints of their certificates. */
  messagingRouters?: RouterAddress[];
  notificationRouters?: RouterAddress[];
  /** The process that runs them. */
  pid: number;
}

export const endpointsFile = (dataDir: string): string => path.resolve(dataDir, ENDPOINTS_FILE);

/** @returns undefined when no stack has written the file, or its process has ended without deleting it. */
export function readStackEndpoints(dataDir: string): StackEndpoints | undefined {
  try {
    const endpoints = JSON.parse(readFileSync(endpointsFile(dataDir), 'utf8')) as StackEndpoints;
    return isAlive(endpoints.pid) ? endpoints : undefined;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** A pid that is used again by another process passes; connecting then says that nothing listens. */
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // The process exists and belongs to another user.
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
