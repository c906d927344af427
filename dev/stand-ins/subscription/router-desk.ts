/**
 * What every stand-in router does with commands, whichever way they come: records each call, answers by the rules,
 * and fails as it was told to. What it recorded can be read, and failures be set, from outside:
 *
 * ```
 * GET  /_calls    {"batches": [...], "calls": [...]}
 * GET  /_state    what the router holds
 * POST /_fail     {"failure": {"kind": ...}, "subject"?, "times"?}
 * POST /_heal     removes all failures
 * POST /_lose     loses its state, as after the loss of its disk
 * ```
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { json } from 'node:stream/consumers';
import type { RouterAddress } from '../../../activities/subscription/router/ports.ts';
import type { DelayedAnswer, HeldAnswer } from '../failure-scripts.ts';
import { answerIsDue, createFailureScripts } from '../failure-scripts.ts';
import type { AnyAnswer, RouterRules } from './router-rules.ts';
import { errorAnswer, nameOf } from './router-rules.ts';

/** How the answer to a command goes wrong. Those with `isExecuted` may happen after the command has had its effect. */
export type RouterFailure =
  /** The command is refused with this error: `AUTH`, `QUOTA`, `INTERNAL` … */
  | { kind: 'error'; code: string; detail?: string }
  | DelayedAnswer
  /** A held command is executed when it is released, also if its caller has gone. */
  | HeldAnswer
  /** No answer to this command, and no end of the stream, until `heal`. */
  | { kind: 'silence'; isExecuted?: boolean }
  /** No answer to this command. */
  | { kind: 'omit'; isExecuted?: boolean }
  /** The connection breaks at this command. */
  | { kind: 'reset'; isExecuted?: boolean }
  /** Any answer at all. */
  | { kind: 'answer'; answer: object; isExecuted?: boolean }
  /** Any text in the place of a transmission. */
  | { kind: 'line'; line: string }
  /** Any bytes (hex) in the place of a block. */
  | { kind: 'block'; hex: string }
  /** The connection ends in the place of all answers. */
  | { kind: 'status'; status: number; body?: string };

export interface RouterFailureScript {
  failure: RouterFailure;
  /**
   * Which commands: an operation (`SNEW`), an id of queue, notifier, token or subscription, a device token, or an
   * operation and one of these (`SNEW <notifier id>`). Default: every command.
   */
  subject?: string;
  /** How many commands fail; default: all until `heal`. */
  times?: number;
}

/** A command that was received, answered or not. */
export interface RecordedCall {
  op: string;
  entity?: string;
  /** Ids it names beside its entity: the notifier of an SNEW, the device token of a TNEW. */
  subjects: string[];
  /** Number of its batch, from 1. */
  batch: number;
  /** What was answered, and `-` when nothing was: `OK`, `IDSUB`, `ERR AUTH`, `ERR CMD SYNTAX` … */
  answer: string;
  /** Milliseconds since the epoch. */
  at: number;
}

/** A block. */
export interface RecordedBatch {
  batch: number;
  /** Commands in it. */
  size: number;
  /** Commands in each of its blocks. */
  blocks: number[];
  version: number;
  /** Of the connection, counted from the start: batches of different sessions come over different ones. */
  connection: number;
  at: number;
}

/** What the stand-ins have in common. */
export interface RouterStandIn {
  address: RouterAddress;
  /** `https://127.0.0.1:<port>`, for requests from outside. */
  url: string;
  /** Commands so far, oldest first; of very many the newest. */
  calls: readonly RecordedCall[];
  batches: readonly RecordedBatch[];
  /** Connections: open now and opened since the start. */
  sockets: Readonly<{ open: number; opened: number }>;
  /** Adds a failure; of several that fit a command the oldest that is not used up decides. */
  fail(script: RouterFailureScript): void;
  /** Removes all failures, and breaks the connections that wait in silence. */
  heal(): void;
  /** Goes down, open connections included; what it holds is kept. */
  stop(): Promise<void>;
  /** Comes up again, at the same address with the same certificate. */
  start(): Promise<void>;
  loseState(): void;
}

/** A command on the desk. */
export interface CommandOnDesk {
  op: string;
  entity?: string | undefined;
  /** Ids that it names beside its entity. */
  subjects: string[];
  /** Never throws. */
  execute(): AnyAnswer;
}

/** Where the answers to a batch go. */
export interface AnswerWriter {
  /** @param index of the command in its batch. */
  answer(index: number, answer: object): void;
  line(line: string): void;
  block(bytes: Buffer): void;
  /** In the place of all answers. */
  refuse(status: number, body: string): void;
  /** Ends the connection. */
  reset(): void;
  /** Begins to wait in silence. @returns when the connection is over. */
  over(signal: AbortSignal): Promise<unknown>;
  isOver(): boolean;
}

export interface RouterDesk extends Pick<RouterStandIn, 'calls' | 'batches' | 'fail' | 'heal'> {
  /**
   * Answers a batch.
   *
   * @param stopping ends what waits.
   * @returns when every command has its answer, or will get none.
   */
  serve(
    batch: Pick<RecordedBatch, 'blocks' | 'version' | 'connection'>,
    commands: readonly CommandOnDesk[],
    writer: AnswerWriter,
    stopping: AbortSignal,
  ): Promise<void>;
  /** Answers a request from outside; false when there is no such thing. */
  control(request: IncomingMessage, response: ServerResponse): Promise<boolean>;
}

/** Far more than any test looks at: a stand-in may run for days. */
const MAX_RECORDED = 200_000;

export function createRouterDesk(rules: RouterRules): RouterDesk {
  const calls: RecordedCall[] = [];
  const batches: RecordedBatch[] = [];
  const failures = createFailureScripts<RouterFailure>();
  const silent = new Set<AnswerWriter>();
  /** Batches. */
  let received = 0;

  const desk: RouterDesk = {
    calls,
    batches,
    fail: (script) => failures.add(script, script.subject),
    heal() {
      failures.heal();
      for (const writer of silent) writer.reset();
    },
    async serve({ blocks, version, connection }, commands, writer, stopping) {
      received += 1;
      const batch = received;
      const at = Date.now();
      record(batches, { batch, size: commands.length, blocks, version, connection, at });
      const planned = commands.map(({ op, entity, subjects, execute }, index): Planned => {
        const ids = [...(entity === undefined ? [] : [entity]), ...subjects];
        const call: RecordedCall = {
          op,
          ...(entity === undefined ? {} : { entity }),
          subjects,
          batch,
          answer: '-',
          at,
        };
        record(calls, call);
        return {
          index,
          call,
          failure: failures.next(op, ...ids, ...ids.map((id) => `${op} ${id}`)),
          execute() {
            const answer = execute();
            call.answer = nameOf(answer);
            return answer;
          },
        };
      });
      const whole = planned.find(({ failure }) => failure?.kind === 'status')?.failure;
      if (whole?.kind === 'status') writer.refuse(whole.status, whole.body ?? '');
      else await Promise.all(planned.map((plan) => respond(plan, writer, stopping)));
    },
    async control(request, response) {
      const path = new URL(request.url ?? '/', 'https://router').pathname;
      const answer = await ask(`${request.method} ${path}`, () => json(request));
      if (answer) sendJson(response, 200, answer);
      return answer !== undefined;
    },
  };

  async function respond(
    { index, call, failure, execute }: Planned,
    writer: AnswerWriter,
    stopping: AbortSignal,
  ): Promise<void> {
    if (failure && 'isExecuted' in failure && failure.isExecuted) execute();
    switch (failure?.kind) {
      case 'error': {
        const { code } = failure;
        call.answer = `ERR ${code}`;
        writer.answer(index, errorAnswer(failure));
        return;
      }
      case 'answer':
        call.answer = nameOf({ op: '?', ...failure.answer });
        writer.answer(index, failure.answer);
        return;
      case 'line':
        writer.line(failure.line);
        return;
      case 'block':
        writer.block(Buffer.from(failure.hex, 'hex'));
        return;
      case 'reset':
        writer.reset();
        return;
      case 'silence':
        silent.add(writer);
        await writer.over(stopping);
        silent.delete(writer);
        return;
      case 'delay':
        if (!(await answerIsDue(failure, stopping)) || writer.isOver()) return;
        writer.answer(index, execute());
        return;
      case 'hold': {
        if (!(await answerIsDue(failure, stopping))) return;
        const answer = execute();
        if (!writer.isOver()) writer.answer(index, answer);
        return;
      }
      case 'omit':
      case 'status':
        return;
      case undefined:
        writer.answer(index, execute());
    }
  }

  async function ask(route: string, body: () => Promise<unknown>): Promise<object | undefined> {
    switch (route) {
      case 'GET /_calls':
        return { batches, calls };
      case 'GET /_state':
        return rules.state();
      case 'POST /_fail':
        desk.fail((await body()) as RouterFailureScript);
        return DONE;
      case 'POST /_heal':
        desk.heal();
        return DONE;
      case 'POST /_lose':
        rules.loseState();
        return DONE;
      default:
        return await rules.control(route, body);
    }
  }

  return desk;
}

/** The answer to a request from outside that has nothing to tell. */
export const DONE = { ok: true };

/** Adds to what is kept, of which the older half goes when it has grown too long. */
function record<Item>(kept: Item[], item: Item): void {
  if (kept.length >= MAX_RECORDED) kept.splice(0, MAX_RECORDED / 2);
  kept.push(item);
}

interface Planned {
  index: number;
  call: RecordedCall;
  failure: RouterFailure | undefined;
  execute(): AnyAnswer;
}

export function sendJson(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}
