/**
 * A stand-in router that speaks JSON over HTTPS: a real server on the loopback with its certificate, batches of signed
 * commands in blocks, answers that are streamed one by one, and sessions in which recipients get messages and
 * notification routers learn that one arrived.
 */
import { createPrivateKey, randomUUID, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Server } from 'node:https';
import { createServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { json } from 'node:stream/consumers';
import type { z } from 'zod';
import { fingerprintOf } from '../../../activities/subscription/router/connection.ts';
import { isSignedBy } from '../../../activities/subscription/router/signing.ts';
import type { RouterProtocol, SentCommand, SessionEvent } from '../../../api/subscription/router-wire.ts';
import {
  BLOCK_BYTES,
  NEWEST_VERSION,
  NTF_COMMANDS,
  NTF_VERSION_WITH_BATCHES,
  OLDEST_VERSION,
  SESSION_PATH,
  SMP_COMMANDS,
  commandsPath,
  fitsBlock,
  handshakePath,
  requestSchema,
} from '../../../api/subscription/router-wire.ts';
import { LOOPBACK } from '../../servers/ports.ts';
import type { LoopbackCertificate } from '../certificate.ts';
import type { AnswerWriter, CommandOnDesk, RouterStandIn } from './router-desk.ts';
import { createRouterDesk, sendJson } from './router-desk.ts';
import type { AnyAnswer, ReceivedCommand } from './router-rules.ts';
import { answerOr, checkCredentials, errorAnswer, Refusal } from './router-rules.ts';
import type { RouterServerOptions } from './transport.ts';

const COMMANDS: Record<RouterProtocol, Record<string, z.ZodType>> = { smp: SMP_COMMANDS, ntf: NTF_COMMANDS };

export async function startHttpsServer(options: RouterServerOptions): Promise<RouterStandIn> {
  const { protocol, rules, version: newest = NEWEST_VERSION[protocol] } = options;
  const { oldestVersion: oldest = OLDEST_VERSION[protocol] } = options;
  const certificate = options.certificate as LoopbackCertificate;
  const sockets = { open: 0, opened: 0 };
  const desk = createRouterDesk(rules);
  const keyHash = fingerprintOf(new X509Certificate(certificate.certPem).raw);
  const numberOf = new WeakMap<object, number>();
  let stopping = new AbortController();
  let server: Server | undefined;
  let port = options.port;

  async function receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = new URL(request.url ?? '/', 'https://router').pathname;
    const route = `${request.method} ${path}`;
    if (route === `GET ${handshakePath(protocol)}`) {
      sendJson(response, 200, { protocol, min: oldest, max: newest });
    } else if (route === `POST ${commandsPath(protocol)}`) await receiveBatch(request, response);
    else if (route === `GET ${SESSION_PATH}` && options.openSession) openSession(response);
    else if (!(await desk.control(request, response))) {
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
    if (version > newest || version < oldest) {
      sendJson(response, 426, { error: `the newest version here is ${newest}` });
      return;
    }
    const commands = blocks.flat();
    const limits = {
      blockBytes: BLOCK_BYTES[protocol],
      isSingle: protocol === 'ntf' && version < NTF_VERSION_WITH_BATCHES,
    };
    const misfits = new Set(blocks.filter((block) => !fitsBlock(block, limits)).flat());
    await desk.serve(
      {
        blocks: blocks.map(({ length }) => length),
        version,
        connection: numberOf.get(request.socket) ?? 0,
      },
      commands.map((sent): CommandOnDesk => ({
        op: sent.command.op,
        entity: sent.entity,
        subjects: rules.subjectsOf(sent.command, sent.entity),
        execute: () =>
          misfits.has(sent)
            ? errorAnswer({ code: 'BLOCK' })
            : answerOr(() => execute(sent, { version, session })),
      })),
      writerTo(request, response, commands),
      stopping.signal,
    );
    response.end();
  }

  /** Checks a command's name, its credentials and its parameters, in this order. */
  function execute(
    sent: SentCommand,
    { version, session }: Pick<ReceivedCommand, 'version' | 'session'>,
  ): AnyAnswer {
    const { id, entity, command, signature } = sent;
    const schema = Object.hasOwn(COMMANDS[protocol], command.op) ? COMMANDS[protocol][command.op] : undefined;
    if (!schema) throw new Refusal('CMD', 'UNKNOWN');
    const isAuthorized = signature !== undefined;
    checkCredentials(rules.credentials[command.op]!, { entity, isAuthorized });
    const parsed = schema.safeParse(command);
    if (!parsed.success) throw new Refusal('CMD', 'SYNTAX');
    const received: ReceivedCommand<never> = {
      command: parsed.data as never,
      entity,
      isAuthorized,
      isAuthorizedBy: (key) =>
        isSignedBy(
          { router: keyHash, id, entity, command: parsed.data as never },
          signature ?? '',
          Buffer.from(key, 'base64url'),
        ),
      version,
      session,
    };
    return rules.execute(received);
  }

  /** A session lasts as long as its stream. */
  function openSession(response: ServerResponse): void {
    const session = randomUUID();
    const tell = (event: SessionEvent): void => void response.write(`${JSON.stringify(event)}\n`);
    response.once('close', options.openSession!(session, tell));
    response.writeHead(200, { 'content-type': 'application/x-ndjson' });
    tell({ event: 'SESSION', session });
  }

  const connections = new Set<Socket>();
  const standIn: RouterStandIn = {
    get address() {
      return { host: LOOPBACK, port, keyHash };
    },
    get url() {
      return `https://${LOOPBACK}:${port}`;
    },
    calls: desk.calls,
    batches: desk.batches,
    sockets,
    fail: desk.fail,
    heal: desk.heal,
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
      rules.started();
    },
    async stop() {
      const ending = server;
      if (!ending) return;
      server = undefined;
      await rules.stopping();
      const closed = once(ending, 'close');
      ending.close();
      // Those in the middle of their handshake too, which the server of HTTP does not know yet: one that ended it from
      // here on would be kept open by its client for good.
      for (const socket of connections) socket.destroy();
      stopping.abort();
      await closed;
    },
    loseState: () => rules.loseState(),
  };
  await standIn.start();
  return standIn;
}

function writerTo(
  request: IncomingMessage,
  response: ServerResponse,
  commands: readonly SentCommand[],
): AnswerWriter {
  // Each command that waits listens for the end of the answer.
  response.setMaxListeners(response.getMaxListeners() + commands.length);
  return {
    answer(index, answer) {
      const { id, entity } = commands[index]!;
      if (!response.headersSent) response.writeHead(200, { 'content-type': 'application/x-ndjson' });
      response.write(`${JSON.stringify({ id, ...(entity === undefined ? {} : { entity }), answer })}\n`);
    },
    line: (line) => void response.write(`${line}\n`),
    block: (bytes) => void response.write(bytes),
    refuse: (status, body) => void response.writeHead(status, { 'content-type': 'text/html' }).end(body),
    reset: () => void request.socket.destroy(),
    over(signal) {
      response.flushHeaders();
      return once(response, 'close', { signal });
    },
    isOver: () => response.destroyed,
  };
}
