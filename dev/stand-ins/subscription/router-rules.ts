/** What the rules of both kinds of router have in common, whichever way commands come: who may say what, and refusals. */
import type { CommandError } from './protocol.ts';

/** A command as its transport has read it. Keys are in the spelling of that transport. */
export interface ReceivedCommand<Command = { op: string }> {
  command: Command;
  /** The queue, notifier, token or subscription that it is about, base64url. */
  entity?: string | undefined;
  /** Whether there is a signature or an authenticator at all. */
  isAuthorized: boolean;
  /** Never throws. */
  isAuthorizedBy(key: string): boolean;
  /** That both sides speak. */
  version: number;
  /** Whose subscriptions begin with it. */
  session?: string | undefined;
}

export type AnyAnswer = { op: string; error?: CommandError };

/** What a router knows and does, and is asked through a transport. */
export interface RouterRules {
  credentials: Readonly<Record<string, Credentials>>;
  /** @throws Refusal `AUTH` unless the command comes from who may give it. Nothing is changed. */
  check(received: ReceivedCommand<never>): void;
  /** Checks the command too. @throws Refusal for one that is not as the rules want it. */
  execute(received: ReceivedCommand<never>): AnyAnswer;
  /** Ids that a failure script may name, beside operation and entity. */
  subjectsOf(command: object, entity: string | undefined): string[];
  /** What the router holds. */
  state(): object;
  loseState(): void;
  /**
   * Requests from outside that only this kind of router knows.
   *
   * @returns undefined when it does not know it either.
   */
  control(route: string, body: () => Promise<unknown>): Promise<object | undefined>;
  /** The server listens (again). */
  started(): void;
  /** The server is going down. */
  stopping(): Promise<void> | void;
}

/** Who must sign, and whether the command must be about something. */
export type Credentials = 'none' | 'signature' | 'signature and entity' | 'entity';

/** A refusal, as a command gets it for an answer. */
export class Refusal extends Error {
  override name = 'Refusal';
  readonly code: string;
  readonly detail: string | undefined;

  constructor(code: string, detail?: string) {
    super(code);
    this.code = code;
    this.detail = detail;
  }
}

/** @throws Refusal `CMD` with `NO_AUTH` or `HAS_AUTH`. */
export function checkCredentials(
  credentials: Credentials,
  { entity, isAuthorized }: Pick<ReceivedCommand, 'entity' | 'isAuthorized'>,
): void {
  const needsEntity = credentials.endsWith('entity');
  if (credentials.startsWith('signature') && !isAuthorized) throw new Refusal('CMD', 'NO_AUTH');
  if (needsEntity && entity === undefined) throw new Refusal('CMD', 'NO_AUTH');
  if (!needsEntity && entity !== undefined) throw new Refusal('CMD', 'HAS_AUTH');
  if (credentials === 'none' && isAuthorized) throw new Refusal('CMD', 'HAS_AUTH');
}

/** Turns a refusal into an answer. */
export function answerOr(work: () => AnyAnswer): AnyAnswer {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return errorAnswer(error);
  }
}

export function errorAnswer({
  code,
  detail,
}: {
  code: string;
  detail?: string | undefined;
}): Required<AnyAnswer> {
  return { op: 'ERR', error: { code, ...(detail === undefined ? {} : { detail }) } };
}

/** As it is written down: `OK`, `ERR AUTH`, `ERR CMD SYNTAX` … */
export function nameOf({ op, error }: AnyAnswer): string {
  return error ? [op, error.code, ...(error.detail === undefined ? [] : [error.detail])].join(' ') : op;
}
