/** What there is in a process before anything is connected, and how a dependency that is away is reported. */
import type { Meter } from '@opentelemetry/api';
import type { Logger } from 'pino';
import type { FcmTarget } from '../activities/mobile-push/fcm.ts';
import { reasonOf } from '../activities/reason.ts';
import type { RouterAddress } from '../activities/subscription/router/ports.ts';
import { SelfExplanatoryError } from '../api/errors.ts';
import type { KeyBoxError } from '../api/key-box.ts';
import { within } from '../api/within.ts';
import type { SymbolMetadata, SymbolTarget } from '../api/symbol-config/push.ts';
import type { Config } from '../config/load.ts';
import type { RedisPlace } from '../config/variables.ts';
import { openWires } from '../config/wire.ts';

/** What must be known about the outside, from the configuration or from the embedded servers. */
export interface Endpoints {
  redis: RedisPlace;
  postgresDsn: string;
  /** Absent when the Temporal server is named by a profile of the SDK's configuration file. */
  temporalAddress?: string;
  userServiceUrl: string;
  /** Needed by the role mobile-push only. */
  fcm?: FcmTarget;
  /** Receivers of symbol configuration; empty unless the process works on it. */
  symbolTargets?: readonly SymbolTarget[];
  /** Enabled at the start when there is no symbol at all. */
  sampleSymbols?: readonly SymbolMetadata[];
  /** Base URL of the portfolio service; needed by the role account-callback only. */
  portfolioUrl?: string;
  /** Notification routers that a token may be registered on; needed by the role subscription only. */
  ntfServers?: readonly RouterAddress[];
}

/** Enough to close what nothing holds, ms. */
const MOMENT_MS = 1_000;

/** What is open in this process, to be closed with it: last opened, first closed. */
export class OpenParts {
  readonly #log: Logger;
  readonly #parts: { what: string; close: () => unknown }[] = [];

  constructor(log: Logger) {
    this.#log = log;
  }

  add(what: string, close: () => unknown): void {
    this.#parts.push({ what, close });
  }

  /**
   * One that fails, or does not end, does not keep the others open: a worker of the SDK whose activities are still under
   * way never ends, and a pool waits for connections that are in use.
   *
   * @param withinMs for all of them together; when it is over, each that is left has a moment.
   */
  async closeAll(withinMs: number): Promise<void> {
    const deadline = performance.now() + withinMs;
    for (const { what, close } of this.#parts.splice(0).reverse()) {
      const limitMs = Math.max(MOMENT_MS, deadline - performance.now());
      try {
        await within(limitMs, close());
      } catch (error) {
        this.#log.error({ err: error }, `${what} did not end in good order`);
      }
    }
  }
}

/**
 * Holds what is in use now. Others are given `facade`, which has the same members: each access goes to the current one,
 * so a call that has begun ends on the one that it began on.
 */
export class Replaceable<T extends object> {
  readonly facade: T;
  #current: T;

  constructor(first: T) {
    this.#current = first;
    // An object of the same class without its own members: a proxy must not hide those of its target.
    this.facade = new Proxy(Object.create(Object.getPrototypeOf(first) as object) as T, {
      has: (_, name) => name in this.#current,
      get: (_, name) => {
        const member: unknown = Reflect.get(this.#current, name, this.#current);
        return typeof member === 'function' ? (member.bind(this.#current) as unknown) : member;
      },
    });
  }

  get current(): T {
    return this.#current;
  }

  /** @returns the one that was in use before. */
  replace(next: T): T {
    const before = this.#current;
    this.#current = next;
    return before;
  }
}

/** Something that uses values from files. */
export interface RenewablePart {
  /** For the log, such as `Redis`. */
  what: string;
  /** What the names of its variables begin with. */
  variables: readonly string[];
  /** Takes the new values into use. @throws when they cannot be used; nothing has changed then. */
  renew(next: Config): Promise<void> | void;
}

/** Counts and logs what the process cannot open: the work that it belongs to waits for the key. */
export interface KeyProblems {
  /** @param of what was not opened: the id of a workflow, or a row and column. */
  report(purpose: 'payload' | 'subscription', error: KeyBoxError, of: string | undefined): void;
}

/** What is there before anything is connected. */
export interface ProcessContext {
  config: Config;
  endpoints: Endpoints;
  log: Logger;
  meter: Meter;
  /** Aborted when the process begins to shut down. */
  draining: AbortSignal;
  open: OpenParts;
  /** Takes what uses values that may be renewed while the process runs. */
  renewable: RenewablePart[];
  keyProblems: KeyProblems;
}

/** Outside production everything is on one machine. */
export function sayWhatIsOpen({ production, wires }: Config, log: Logger): void {
  if (!production) return;
  for (const { name, gaps } of openWires(wires))
    log.warn({ connection: name, gaps }, 'connection is open, as NOTIFICATION_INSECURE allows');
}

/** A dependency could not be reached at start. */
export class DependencyError extends SelfExplanatoryError {
  override name = 'DependencyError';
}

/** @throws DependencyError that names the dependency, the variable to look at, and the reason. */
export async function reach<T>(what: string, variable: string, attempt: () => T | Promise<T>): Promise<T> {
  try {
    return await attempt();
  } catch (error) {
    throw new DependencyError(`cannot reach ${what} (${variable}): ${reasonOf(error)}`, { cause: error });
  }
}

/** An address that only some roles need. @throws Error for {@link reach} to explain. */
export function required<T>(address: T | undefined): T {
  if (address === undefined) throw new Error('it is neither configured nor embedded');
  return address;
}
