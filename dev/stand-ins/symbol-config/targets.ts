/**
 * Stand-ins for the receivers of symbol configuration: 7 geos with a collector and 10 alerts each, on one real HTTP
 * server with a path for each, made of the receiver that real ones use. Failures can be scripted for tests.
 */
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import type { SymbolMetadata, SymbolTarget } from '../../../api/symbol-config/push.ts';
import {
  createAlertReceiver,
  createCollectorReceiver,
  fileSymbolStore,
  type SymbolReceiver,
} from '../../../client/symbol-config/receiver.ts';
import type { CallerProof, ReceiverLog } from '../../../client/webhook-proof.ts';
import { DEVELOPMENT_SIGNING_SECRET } from '../../../config/caller.ts';
import type { HeldAnswer } from '../failure-scripts.ts';
import { answerIsDue, createFailureScripts } from '../failure-scripts.ts';
import { assertPortFree, LOOPBACK } from '../../servers/ports.ts';

const GEOS = ['us-east', 'us-west', 'sa-east', 'eu-west', 'eu-central', 'ap-south', 'ap-northeast'] as const;
const ALERTS_PER_GEO = 10;
const PATH_PREFIX = '/targets/';

const SAMPLE_SYMBOLS: readonly SymbolMetadata[] = [
  { symbol: 'BTC', ticker: 'BTC-PERP', decimals: 5, priceScale: 10 },
  { symbol: 'ETH', ticker: 'ETH-PERP', decimals: 4, priceScale: 100 },
  { symbol: 'SOL', ticker: 'SOL-PERP', decimals: 2, priceScale: 10_000 },
  { symbol: 'DOGE', ticker: 'DOGE-PERP', decimals: 0, priceScale: 1_000_000 },
];

/** What collectors know without ever having been told. */
const STATIC_DEFAULTS = SAMPLE_SYMBOLS.slice(0, 2);

const SILENT: ReceiverLog = { info: () => undefined, error: () => undefined };

/** How a push goes wrong. */
export type TargetFailure =
  /** The status, and the push is not applied. */
  | { kind: 'status'; status: number; headers?: Record<string, string> }
  /** No answer until {@link SymbolTargetsStandIn.heal}, which resets the connection. */
  | { kind: 'hang' }
  | HeldAnswer
  /** The connection is reset before any answer. */
  | { kind: 'reset' }
  /** The push is applied and acknowledged, by an answer whose body does not end. */
  | { kind: 'endless_answer' };

export interface TargetFailureScript {
  failure: TargetFailure;
  /** Default: every target. */
  target?: string;
  /** How many pushes fail; default: all until {@link SymbolTargetsStandIn.heal}. */
  times?: number;
}

/** A push that was received, whatever became of it. */
export interface RecordedPush {
  target: string;
  version: number;
  /** Of the body. */
  bytes: number;
  body: string;
  /** All that were sent, names in lower case. */
  headers: IncomingMessage['headers'];
  /** Answered with 2xx. */
  isAcknowledged: boolean;
  /** Milliseconds since the epoch, when its headers were there. */
  at: number;
}

/** The running stand-ins. */
export interface SymbolTargetsStandIn {
  /** As a file of targets has them. */
  targets: readonly SymbolTarget[];
  /** For a registry that has none yet, so that there is something to push. */
  sampleSymbols: readonly SymbolMetadata[];
  /** Every push so far, oldest first. */
  pushes: readonly RecordedPush[];
  /** What a target has now. */
  held(target: string): ReturnType<Receiver['held']>;
  /** Adds a failure; of several that fit a push the oldest that is not used up decides. */
  fail(script: TargetFailureScript): void;
  /** Removes all failures. */
  heal(): void;
  /** Restarts a target without its store, as after the loss of its disk. */
  loseState(target: string): Promise<void>;
  /** Ends the server immediately, open connections included. */
  stop(): Promise<void>;
}

type Receiver = SymbolReceiver<'price_collector'> | SymbolReceiver<'price_alert'>;

export interface SymbolTargetsOptions {
  /** Loopback port; default 0: a free one. */
  port?: number;
  /** Where each keeps its list. */
  storeDir: string;
  log?: ReceiverLog;
  /** Default: signatures of a service without configured secrets. */
  proof?: CallerProof;
}

/**
 * Starts the stand-ins on 127.0.0.1.
 *
 * @throws Error when the port is taken.
 */
export async function startSymbolTargets(options: SymbolTargetsOptions): Promise<SymbolTargetsStandIn> {
  const { port = 0, storeDir, log = SILENT, proof = { secrets: [DEVELOPMENT_SIGNING_SECRET] } } = options;
  if (port !== 0) await assertPortFree(port, 'stand-in symbol targets');
  const receivers = new Map<string, Receiver>();
  const pushes: RecordedPush[] = [];
  const failures = createFailureScripts<TargetFailure>();
  const hanging = new Set<ServerResponse>();
  const stopping = new AbortController();

  const server = createServer((request, response) => void receive(request, response));
  server.listen(port, LOOPBACK);
  await once(server, 'listening');
  const url = `http://${LOOPBACK}:${(server.address() as AddressInfo).port}`;
  const targets = GEOS.flatMap((geo) => targetsIn(geo, url));

  const fileOf = (target: string) => path.join(storeDir, `${target}.json`);
  const open = async ({ name, kind }: SymbolTarget): Promise<void> => {
    const common = { store: fileSymbolStore(fileOf(name)), log, ...proof };
    receivers.set(
      name,
      kind === 'price_collector'
        ? await createCollectorReceiver({ ...common, defaults: STATIC_DEFAULTS })
        : await createAlertReceiver(common),
    );
  };
  await Promise.all(targets.map(open));

  async function receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const target = request.url?.startsWith(PATH_PREFIX) ? request.url.slice(PATH_PREFIX.length) : '';
    const receiver = receivers.get(target);
    if (!receiver) {
      response.writeHead(404).end();
      return;
    }
    const at = Date.now();
    const body = await bodyOf(request).catch(() => undefined);
    if (body === undefined) return;
    const { version } = JSON.parse(body.toString('utf8')) as { version: number };
    const recorded = {
      target,
      version,
      bytes: body.length,
      body: body.toString('utf8'),
      headers: request.headers,
      isAcknowledged: false,
      at,
    };
    pushes.push(recorded);
    const failure = failures.next(target);
    if (failure?.kind === 'hold' && !(await answerIsDue(failure, stopping.signal))) return;
    if (failure?.kind === 'hang') hanging.add(response);
    else if (failure?.kind === 'reset') response.socket?.resetAndDestroy();
    else if (failure?.kind === 'status')
      response.writeHead(failure.status, failure.headers).end('scripted failure');
    else {
      const { status, answer } = await receiver.answer({ headers: request.headers, body: recorded.body });
      recorded.isAcknowledged = status < 300;
      if (failure?.kind === 'endless_answer') {
        response.writeHead(status).write('{');
        hanging.add(response);
        return;
      }
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(answer));
    }
  }

  return {
    targets,
    sampleSymbols: SAMPLE_SYMBOLS,
    pushes,
    held: (target) => receivers.get(target)!.held(),
    fail: (script) => failures.add(script, script.target),
    heal: () => {
      failures.heal();
      for (const response of hanging) response.socket?.resetAndDestroy();
      hanging.clear();
    },
    async loseState(name) {
      rmSync(fileOf(name), { force: true });
      await open(targets.find((target) => target.name === name)!);
    },
    async stop() {
      if (!server.listening) return;
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      stopping.abort();
      await closed;
    },
  };
}

function targetsIn(geo: string, url: string): SymbolTarget[] {
  const target = (name: string, kind: SymbolTarget['kind']): SymbolTarget => ({
    name,
    kind,
    geo,
    url: url + PATH_PREFIX + name,
  });
  return [
    target(`${geo}-collector`, 'price_collector'),
    ...Array.from({ length: ALERTS_PER_GEO }, (_, index) =>
      target(`${geo}-alert-${index + 1}`, 'price_alert'),
    ),
  ];
}

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
  return Buffer.concat(chunks);
}
