/** A connection with a binary router, once a version is agreed: blocks of commands, and blocks of what it says to them. */
import type { KeyObject } from 'node:crypto';
import { once } from 'node:events';
import type { TLSSocket } from 'node:tls';
import type { SessionEvent } from '../../../../api/subscription/router-wire.ts';
import type { AnswerWriter, CommandOnDesk, RouterDesk } from '../router-desk.ts';
import type { AnyAnswer, ReceivedCommand, RouterRules } from '../router-rules.ts';
import { answerOr, checkCredentials, errorAnswer } from '../router-rules.ts';
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
  const closed = once(socket, 'close');
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

  function sayAnswer(to: Pick<ReceivedTransmission, 'correlationId' | 'entity'>, answer: AnyAnswer): void {
    const { correlationId, entity } = to;
    const content = writeAnswer(answer as Parameters<typeof writeAnswer>[0]);
    say(
      writeTransmission(agreement, { authorization: NOTHING, correlationId, entity, content }),
      answer.op === 'ERR',
    );
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
    desk
      .serve(
        { blocks: [received.length], version, connection },
        received.map((transmission) => onDesk(transmission)),
        writerTo(received),
        stopping,
      )
      // The end of the stand-in.
      .catch(() => socket.destroy());
  }

  function onDesk(transmission: ReceivedTransmission): CommandOnDesk {
    const { content } = transmission;
    const entity = transmission.entity.length > 0 ? transmission.entity.toString('base64url') : undefined;
    /** Read once, whether it is executed or not: failures are chosen by what it names. */
    let command: object = {};
    const unreadable = answerOr(() => {
      command = readCommand(protocol, version, content);
      return READABLE;
    });
    return {
      op: operationOf(content),
      entity,
      subjects: rules.subjectsOf(command, entity),
      execute() {
        if (transmission.isOfOtherSession) return errorAnswer({ code: 'SESSION' });
        return unreadable === READABLE ? answerOr(() => execute(command, transmission, entity)) : unreadable;
      },
    };
  }

  function execute(
    command: object,
    { authorization, authorized, correlationId }: ReceivedTransmission,
    entity: string | undefined,
  ): AnyAnswer {
    const received: ReceivedCommand<never> = {
      command: command as never,
      entity,
      isAuthorized: authorization.length > 0,
      isAuthorizedBy: (key) =>
        isAuthorizedBy(
          Buffer.from(key, 'base64url'),
          authorization,
          { content: authorized, correlationId },
          sessionKey,
        ),
      version,
      session,
    };
    checkCredentials(rules.credentials[(command as { op: string }).op]!, received);
    current = { entity: entity ?? '' };
    try {
      const answer = rules.execute(received);
      return current.message ? messageAnswer(current.message) : answer;
    } finally {
      current = undefined;
    }
  }

  function writerTo(received: readonly ReceivedTransmission[]): AnswerWriter {
    return {
      answer: (index, answer) => sayAnswer(received[index]!, answer as AnyAnswer),
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

/** What a command that could be read has for its refusal. */
const READABLE: AnyAnswer = { op: 'READABLE' };

function messageAnswer({ messageId, body, at }: Extract<SessionEvent, { event: 'MSG' }>): AnyAnswer {
  const answer = { op: 'MSG', messageId, body, at };
  return answer;
}
