/**
 * What the stand-ins for both kinds of router share: a real HTTPS server on the loopback with its certificate,
 * batches of signed commands in blocks, answers that are streamed one by one, a record of every call, and scripted
 * failures, which can also be read and set from outside:
 *
 * ```
 * GET  /_calls    {"batches": [...], "calls": [...]}
 * GET  /_state    what the router holds
 * POST /_fail     {"failure": {"kind": ...}, "subject"?, "times"?}
 * POST /_heal     removes all failures
 * POST /_lose     loses its state, as after the loss of its disk
 * ```
 */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Server } from 'node:https';
import { createServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { json } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import type { z } from 'zod';
import type { RouterAddress } from '../../../activities/subscription/router/ports.ts';
import { fingerprintOf } from '../../../activities/subscription/router/connection.ts';
import type { CommandError, RouterProtocol, SentCommand } from '../../../api/subscription/router-wire.ts';
import {
  BLOCK_BYTES,
  NEWEST_VERSION,
  NTF_VERSION_WITH_BATCHES,
  OLDEST_VERSION,
  commandsPath,
  fitsBlock,
  handshakePath,
  requestSchema,
} from '../../../api/subscription/router-wire.ts';
import { createFailureScripts } from '../failure-scripts.ts';
import type { LoopbackCertificate } from '../certificate.ts';
import { LOOPBACK } from '../../servers/ports.ts';

/** How the answer to a command goes wrong. Those with `isExecuted` may happen after the command has had its effect. */
export type RouterFailure =
  /** The command is refused with this error: `AUTH`, `QUOTA`, `INTERNAL` … */
  | { kind: 'error'; code: string; detail?: string }
  /** The right answer, this many milliseconds late. */
  | { kind: 'delay'; ms: number }
  /** No answer to this command, and no end of the stream, until `heal`. */
  | { kind: 'silence'; isExecuted?: boolean }
  /** The stream ends without an answer to this command. */
  | { kind: 'omit'; isExecuted?: boolean }
  /** The connection breaks at this command. */
  | { kind: 'reset'; isExecuted?: boolean }
  /** Any answer at all. */
  | { kind: 'answer'; answer: object; isExecuted?: boolean }
  /** Any line, for instance one that is no JSON. */
  | { kind: 'line'; line: string }
  /** The whole batch gets this HTTP status and body. */
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

/** A request. */
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

/** What one command is about, beside what it says. */
export interface CommandContext {
  version: number;
  session: string | undefined;
  /** Of this router. */
  keyHash: string;
}

type AnyAnswer = { op: string; error?: CommandError };

export interface RouterBehaviour {
  execute(command: SentCommand, context: CommandContext): AnyAnswer;
  /** Ids that a failure script may name, beside operation and entity. */
  subjectsOf(command: SentCommand): string[];
  /** Answers requests that only this kind of router knows; false when it does not know them either. */
  handle?(request: IncomingMessage, response: ServerResponse, path: string): Promise<boolean> | boolean;
  state(): object;
  loseState(): void;
  /** The server listens (again). */
  started?(): void;
  /** The server is going down. */
  stopping?(): Promise<void> | void;
}

export interface RouterServerOptions {
  protocol: RouterProtocol;
  certificate: LoopbackCertificate;
  /** 0: a free one. */
  port: number;
  /** Newest version it speaks. */
  version?: number;
  behaviour: RouterBehaviour;
}

/** What the stand-ins have in common. */
export interface RouterStandIn {
  address: RouterAddress;
  /** `https://127.0.0.1:<port>`. */
  url: string;
  /** Every command so far, oldest first. */
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

export async function startRouterServer(options: RouterServerOptions): Promise<RouterStandIn> {
  const { protocol, certificate, behaviour, version: newest = NEWEST_VERSION[protocol] } = options;
  const calls: RecordedCall[] = [];
  const batches: RecordedBatch[] = [];
  const sockets = { open: 0, opened: 0 };
  const failures = createFailureScripts<RouterFailure>();
  const silent = new Set<ServerResponse>();
  const keyHash = fingerprintOf(new X509Certificate(certificate.certPem).raw);
  const numberOf = new WeakMap<object, number>();
  let stopping = new AbortController();
  let server: Server | undefined;
  let port = options.port;

  async function receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = new URL(request.url ?? '/', 'https://router').pathname;
    const route = `${request.method} ${path}`;
    if (route === `GET ${handshakePath(protocol)}`) {
      sendJson(response, 200, { protocol, min: OLDEST_VERSION[protocol], max: newest });
    } else if (route === `POST ${commandsPath(protocol)}`) await receiveBatch(request, response);
    else if (
      !(await control(route, request, response)) &&
      !(await behaviour.handle?.(request, response, path))
    ) {
      sendJson(response, 404, { error: 'there is no such path' });
    }
  }

  async function receiveBatch(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const parsed = requestSchema.safeParse(await json(request).catch(() => undefined));
    if (!parsed.success) {
      sendJson(response, 400, { error: 'the body is no batch of commands' });
      return;
    }
    const { version, session } = parsed.data;
    const blocks = parsed.data.blocks as unknown as SentCommand[][];
    if (version > newest || version < OLDEST_VERSION[protocol]) {
      sendJson(response, 426, { error: `the newest version here is ${newest}` });
      return;
    }
    const batch = batches.length + 1;
    const at = Date.now();
    const commands = blocks.flat();
    const connection = numberOf.get(request.socket) ?? 0;
    batches.push({
      batch,
      size: commands.length,
      blocks: blocks.map(({ length }) => length),
      version,
      connection,
      at,
    });
    const limits = {
      blockBytes: BLOCK_BYTES[protocol],
      isSingle: protocol === 'ntf' && version < NTF_VERSION_WITH_BATCHES,
    };
    const misfits = new Set(blocks.filter((block) => !fitsBlock(block, limits)).flat());
    const planned = commands.map((command) => {
      const { op } = command.command;
      const subjects = behaviour.subjectsOf(command);
      const ids = [...(command.entity === undefined ? [] : [command.entity]), ...subjects];
      const call: RecordedCall = { op, ...entityOf(command), subjects, batch, answer: '-', at };
      calls.push(call);
      return { command, call, failure: failures.next(op, ...ids, ...ids.map((id) => `${op} ${id}`)) };
    });

    const execute = ({ command, call }: (typeof planned)[number]): AnyAnswer => {
      const answer = misfits.has(command)
        ? { op: 'ERR', error: { code: 'BLOCK' } }
        : behaviour.execute(command, { version, session, keyHash });
      call.answer = nameOf(answer);
      return answer;
    };
    const whole = planned.find(({ failure }) => failure?.kind === 'status')?.failure;
    if (whole?.kind === 'status') {
      response.writeHead(whole.status, { 'content-type': 'text/html' }).end(whole.body ?? '');
      return;
    }

    const respond = async (plan: (typeof planned)[number]): Promise<void> => {
      const { command, call, failure } = plan;
      const line = (answer: object): void => {
        if (!response.headersSent) response.writeHead(200, { 'content-type': 'application/x-ndjson' });
        response.write(`${JSON.stringify({ id: command.id, ...entityOf(command), answer })}\n`);
      };
      if (failure && 'isExecuted' in failure && failure.isExecuted) execute(plan);
      switch (failure?.kind) {
        case 'error': {
          const { code, detail } = failure;
          call.answer = `ERR ${code}`;
          line({ op: 'ERR', error: { code, ...(detail === undefined ? {} : { detail }) } });
          return;
        }
        case 'answer':
          call.answer = nameOf({ op: '?', ...failure.answer });
          line(failure.answer);
          return;
        case 'line':
          response.write(`${failure.line}\n`);
          return;
        case 'reset':
          request.socket.destroy();
          return;
        case 'silence':
          response.flushHeaders();
          silent.add(response);
          await once(response, 'close', { signal: stopping.signal });
          silent.delete(response);
          return;
        case 'delay':
          // Not beyond the end of the stand-in, whose process could not end otherwise.
          await sleep(failure.ms, undefined, { signal: stopping.signal });
          if (!response.destroyed) line(execute(plan));
          return;
        case 'omit':
        case 'status':
          return;
        case undefined:
          line(execute(plan));
      }
    };
    await Promise.all(planned.map(respond));
    response.end();
  }

  async function control(
    route: string,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<boolean> {
    switch (route) {
      case 'GET /_calls':
        sendJson(response, 200, { batches, calls });
        return true;
      case 'GET /_state':
        sendJson(response, 200, behaviour.state());
        return true;
      case 'POST /_fail': {
        const script = (await json(request)) as RouterFailureScript;
        standIn.fail(script);
        break;
      }
      case 'POST /_heal':
        standIn.heal();
        break;
      case 'POST /_lose':
        standIn.loseState();
        break;
      default:
        return false;
    }
    sendJson(response, 200, { ok: true });
    return true;
  }

  const connections = new Set<Socket>();
  const standIn: RouterStandIn = {
    get address() {
      return { host: LOOPBACK, port, keyHash };
    },
    get url() {
      return `https://${LOOPBACK}:${port}`;
    },
    calls,
    batches,
    sockets,
    fail: (script) => failures.add(script, script.subject),
    heal: () => {
      failures.heal();
      for (const response of silent) response.destroy();
    },
    async start() {
      if (server) return;
      stopping = new AbortController();
      const key = createPrivateKey(certificate.keyPem).export({ type: 'pkcs8', format: 'pem' });
      const starting = createServer({ key, cert: certificate.certPem }, (request, response) => {
        // A client that goes away, or the end of the stand-in: there is nobody left to answer.
        receive(request, response).catch(() => response.destroy());
      });
      starting.on('connection', (socket: Socket) => {
        connections.add(socket);
        socket.once('close', () => connections.delete(socket));
      });
      starting.on('secureConnection', (socket) => {
        sockets.opened += 1;
        sockets.open += 1;
        numberOf.set(socket, sockets.opened);
        socket.once('close', () => (sockets.open -= 1));
      });
      starting.listen(port, LOOPBACK);
      await once(starting, 'listening');
      server = starting;
      port = (starting.address() as AddressInfo).port;
      behaviour.started?.();
    },
    async stop() {
      const ending = server;
      if (!ending) return;
      server = undefined;
      await behaviour.stopping?.();
      const closed = once(ending, 'close');
      ending.close();
      // Those in the middle of their handshake too, which the server of HTTP does not know yet: one that ended it from
      // here on would be kept open by its client for good.
      for (const socket of connections) socket.destroy();
      stopping.abort();
      await closed;
    },
    loseState: () => behaviour.loseState(),
  };
  await standIn.start();
  return standIn;
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

/**
 * Checks a command's name, its credentials and its parameters, in this order.
 *
 * @throws Refusal `CMD` with `UNKNOWN`, `NO_AUTH`, `HAS_AUTH` or `SYNTAX`.
 */
export function checkCommand<Schemas extends Record<string, z.ZodType>>(
  schemas: Schemas,
  credentialsOf: Record<keyof Schemas, Credentials>,
  { command, entity, signature }: SentCommand,
): z.output<Schemas[keyof Schemas]> {
  const schema = Object.hasOwn(schemas, command.op) ? schemas[command.op] : undefined;
  if (!schema) throw new Refusal('CMD', 'UNKNOWN');
  const credentials = credentialsOf[command.op]!;
  const needsEntity = credentials.endsWith('entity');
  if (credentials.startsWith('signature') && signature === undefined) throw new Refusal('CMD', 'NO_AUTH');
  if (needsEntity && entity === undefined) throw new Refusal('CMD', 'NO_AUTH');
  if (!needsEntity && entity !== undefined) throw new Refusal('CMD', 'HAS_AUTH');
  if (credentials === 'none' && signature !== undefined) throw new Refusal('CMD', 'HAS_AUTH');
  const parsed = schema.safeParse(command);
  if (!parsed.success) throw new Refusal('CMD', 'SYNTAX');
  return parsed.data as z.output<Schemas[keyof Schemas]>;
}

/** Turns a refusal into an answer. */
export function answerOr<Answer extends AnyAnswer>(work: () => Answer): AnyAnswer {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    const { code, detail } = error;
    return { op: 'ERR', error: { code, ...(detail === undefined ? {} : { detail }) } };
  }
}

export function sendJson(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

function entityOf({ entity }: SentCommand): { entity?: string } {
  return entity === undefined ? {} : { entity };
}

function nameOf({ op, error }: AnyAnswer): string {
  return error ? [op, error.code, ...(error.detail === undefined ? [] : [error.detail])].join(' ') : op;
}
