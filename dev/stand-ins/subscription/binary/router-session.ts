/** A connection with a binary router, once a version is agreed: blocks of commands, and blocks of what it says to them. */
import type { KeyObject } from 'node:crypto';
import type { TLSSocket } from 'node:tls';
import type { SessionEvent } from '../protocol.ts';
import type { AnswerWriter, CommandOnDesk, RouterDesk } from '../router-desk.ts';
import type { AnyAnswer, ReceivedCommand, RouterRules } from '../router-rules.ts';
import { answerOr, checkCredentials, errorAnswer, Refusal } from '../router-rules.ts';
import { entityOf, writeAnswer, writeEvent } from './answers.ts';
import { writeBounded } from './blocks.ts';
import { MalformedError } from './bytes.ts';
import { operationOf, readCommand } from './commands.ts';
import { isAuthorizedBy } from './keys.ts';
import type { Agreement, ReceivedTransmission } from './transmissions.ts';
import {
  hasSessionKey,
  readBlock,
  readTransmission,
  writeBlocks,
  writeTransmission,
} from './transmissions.ts';

export interface RouterSessionOptions {
  socket: TLSSocket;
  /** Counted from the start of the router. */
  connection: number;
  agreement: Agreement;
  /** Private half of the key that the router's hello has. */
  sessionKey: KeyObject;
  /** Undefined where nothing is said unasked. */
  session: string | undefined;
  rules: RouterRules;
  desk: RouterDesk;
  stopping: AbortSignal;
}

export interface RouterSession {
  receive(block: Buffer): void;
  /** Says what happens to that to which this session is subscribed. */
  tell: { session: string; event: (event: SessionEvent) => void } | undefined;
}

const NOTHING = Buffer.alloc(0);

export function openRouterSession(options: RouterSessionOptions): RouterSession {
  const { socket, connection, agreement, session, rules, desk, stopping } = options;
  const { protocol, version } = agreement;
  const sessionKey = hasSessionKey(agreement) ? options.sessionKey : undefined;
  // Not `once`, which rejects on an error: this promise may have no reader.
  const closed = new Promise<void>((resolve) => void socket.once('close', () => resolve()));
  /** Until what is being done has been done, so that its answers share blocks. */
  let waiting: { transmission: Buffer; isRefusal: boolean }[] = [];
  /** The command that is being executed, and the message that it has made available. */
  let current: { entity: string; message?: Extract<SessionEvent, { event: 'MSG' }> } | undefined;

  function say(transmission: Buffer, isRefusal = false): void {
    if (waiting.length === 0) queueMicrotask(flush);
    waiting.push({ transmission, isRefusal });
  }

  /** Refusals first: a router checks all commands of a block before it executes any. */
  function flush(): void {
    const said = waiting;
    waiting = [];
    for (const areRefusals of [true, false]) {
      const transmissions = said
        .filter(({ isRefusal }) => isRefusal === areRefusals)
        .map(({ transmission }) => transmission);
      for (const block of writeBlocks(agreement, transmissions)) writeBounded(socket, block);
    }
  }

  function sayAnswer(
    { correlationId, entity }: Pick<ReceivedTransmission, 'correlationId' | 'entity'>,
    answer: AnyAnswer,
    isRefusal = false,
  ): void {
    const content = writeAnswer(answer as Parameters<typeof writeAnswer>[0]);
    const transmission = { authorization: NOTHING, correlationId, entity, content };
    say(writeTransmission(agreement, transmission), isRefusal);
  }

  function tell(event: SessionEvent): void {
    // The message that a SUB or an ACK makes available is its answer.
    if (event.event === 'MSG' && current?.entity === event.recipientId) {
      current.message = event;
      return;
    }
    const content = writeEvent(event, version);
    if (!content) return;
    const entity = Buffer.from(entityOf(event), 'base64url');
    const transmission = { authorization: NOTHING, correlationId: NOTHING, entity, content };
    say(writeTransmission(agreement, transmission));
  }

  function receive(block: Buffer): void {
    const received: ReceivedTransmission[] = [];
    try {
      for (const bytes of readBlock(agreement, block)) received.push(readTransmission(agreement, bytes));
    } catch (error) {
      if (!(error instanceof MalformedError)) throw error;
      sayAnswer({ correlationId: NOTHING, entity: NOTHING }, errorAnswer({ code: 'BLOCK' }));
      return;
    }
    const checked = received.map(check);
    desk
      .serve(
        { blocks: [received.length], version, connection },
        checked,
        writerTo(received, checked),
        stopping,
      )
      // The end of the stand-in.
      .catch(() => socket.destroy());
  }

  /** Reads a command, and checks who gives it, before any of its block is executed. */
  function check(transmission: ReceivedTransmission): CheckedCommand {
    const { authorization, authorized, correlationId, content } = transmission;
    const op = operationOf(content);
    const entity = transmission.entity.length > 0 ? transmission.entity.toString('base64url') : undefined;
    /** By key: it is asked for again when the command is executed. */
    const verified = new Map<string, boolean>();
    const received: Omit<ReceivedCommand, 'command'> = {
      entity,
      isAuthorized: authorization.length > 0,
      isAuthorizedBy(key) {
        const der = Buffer.from(key, 'base64url');
        const signed = { content: authorized, correlationId };
        const isVerified = verified.get(key) ?? isAuthorizedBy(der, authorization, signed, sessionKey);
        verified.set(key, isVerified);
        return isVerified;
      },
      version,
      session,
    };
    let command: { op: string } | undefined;
    const refusal = answerOr(() => {
      if (transmission.isOfOtherSession) throw new Refusal('SESSION');
      command = readCommand(protocol, version, content);
      checkCredentials(rules.credentials[command.op]!, received);
      rules.check({ ...received, command: command as never });
      return CHECKED;
    });
    return {
      op,
      entity,
      subjects: rules.subjectsOf(command ?? {}, entity),
      isRefused: refusal !== CHECKED,
      execute: () =>
        refusal === CHECKED ? answerOr(() => execute({ ...received, command: command as never })) : refusal,
    };
  }

  function execute(received: ReceivedCommand<never>): AnyAnswer {
    current = { entity: received.entity ?? '' };
    try {
      const answer = rules.execute(received);
      if (!current.message) return answer;
      const { messageId, body, at } = current.message;
      return { op: 'MSG', messageId, body, at } as AnyAnswer;
    } finally {
      current = undefined;
    }
  }

  function writerTo(
    received: readonly ReceivedTransmission[],
    checked: readonly CheckedCommand[],
  ): AnswerWriter {
    return {
      answer: (index, answer) => sayAnswer(received[index]!, answer as AnyAnswer, checked[index]!.isRefused),
      line: (line) => say(Buffer.from(line, 'latin1')),
      block: (bytes) => writeBounded(socket, bytes),
      refuse: () => void socket.destroy(),
      reset: () => void socket.destroy(),
      over: () => closed,
      isOver: () => socket.destroyed,
    };
  }

  return { receive, tell: session === undefined ? undefined : { session, event: tell } };
}

/** A command on the desk, which may have been refused already. */
type CheckedCommand = CommandOnDesk & { isRefused: boolean };

/** In the place of a refusal. */
const CHECKED: AnyAnswer = { op: 'CHECKED' };
