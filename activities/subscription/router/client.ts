/**
 * Sends batches of commands to routers and sorts out the answers. One request is one batch; each command gets its own
 * answer, or its own error: a router that answers some and then goes silent has answered those.
 */
import type { z } from 'zod';
import type {
  AnswerLine,
  CommandError,
  RouterCommand,
  RouterProtocol,
  SentCommand,
} from '../../../api/subscription/router-wire.ts';
import {
  BLOCK_BYTES,
  NEWEST_VERSION,
  NTF_VERSION_WITH_BATCHES,
  OLDEST_VERSION,
  answerLineSchema,
  commandsPath,
  handshakePath,
  handshakeSchema,
  packBlocks,
} from '../../../api/subscription/router-wire.ts';
import type { RouterConnections } from './connection.ts';
import { createRouterConnections, endpointOf } from './connection.ts';
import { isRetried, withoutOwnWords } from './errors.ts';
import type { RawKey, RouterAddress, RouterError, RouterResult } from './ports.ts';
import { signCommand } from './signing.ts';
import { createRouterTurns } from './turns.ts';

const DEFAULT_COMMAND_TIMEOUT_MS = 30_000;
const DEFAULT_CONNECT_TIMEOUT_MS = 45_000;
const HANDSHAKE_BYTES = 4 * 1024;
/** Endpoints whose version is remembered; beyond that, the ones asked first are asked again. */
const KEPT_VERSIONS = 1_024;
/** The most that the answer to one command takes, bytes; a MSG is the longest. */
const ANSWER_BYTES = 32 * 1024;

export interface RouterClientOptions {
  /** For all answers of a batch, ms; default 30 s. */
  commandTimeoutMs?: number;
  /** For a connection, TLS included, ms; default 45 s. */
  connectTimeoutMs?: number;
  /** Default: 16,384 toward messaging and 512 toward notification routers. */
  blockBytes?: number;
  /** The newest version to speak; default: the newest there is. */
  newestVersion?: number;
}

export interface UnsignedCommand {
  entity?: string;
  command: RouterCommand;
  /** Without one the command goes unsigned. */
  privateKey?: RawKey;
}

export interface RouterClient<Answer> {
  /**
   * @param session batches of different sessions share no connection.
   * @param commandsIn the batch, in the version that both sides speak.
   * @returns an answer for each command, in their order. An `ERR` is an error of this router's kind.
   */
  send(
    session: string,
    address: RouterAddress,
    commandsIn: (version: number) => UnsignedCommand[],
  ): Promise<RouterResult<Answer>[]>;
  close(): Promise<void>;
}

type Operation<Answer> = Answer & { op: string; error?: CommandError };

export function createRouterClient<Answer extends { op: string }>(
  protocol: RouterProtocol,
  answerSchema: z.ZodType<Answer>,
  options: RouterClientOptions,
): RouterClient<Exclude<Answer, { op: 'ERR' }>> {
  const {
    commandTimeoutMs = DEFAULT_COMMAND_TIMEOUT_MS,
    connectTimeoutMs = DEFAULT_CONNECT_TIMEOUT_MS,
    blockBytes = BLOCK_BYTES[protocol],
    newestVersion = NEWEST_VERSION[protocol],
  } = options;
  const connections: RouterConnections = createRouterConnections({ connectTimeoutMs });
  const turns = createRouterTurns();
  const versions = new Map<string, Promise<RouterResult<number>>>();

  /** Asked once for each endpoint, and again when a batch could not be had from it. */
  async function versionOf(session: string, address: RouterAddress): Promise<RouterResult<number>> {
    const endpoint = endpointOf(address);
    let version = versions.get(endpoint);
    if (!version) {
      version = shakeHands(session, address);
      versions.set(endpoint, version);
      for (const oldest of versions.keys()) {
        if (versions.size <= KEPT_VERSIONS) break;
        versions.delete(oldest);
      }
    }
    const result = await version;
    if (!result.ok && versions.get(endpoint) === version) versions.delete(endpoint);
    return result;
  }

  async function shakeHands(session: string, address: RouterAddress): Promise<RouterResult<number>> {
    const lines: string[] = [];
    const error = await connections.exchange(session, address, {
      method: 'GET',
      path: handshakePath(protocol),
      timeoutMs: commandTimeoutMs,
      maxBytes: HANDSHAKE_BYTES,
      onLine: (line) => void lines.push(line),
    });
    if (error) return { ok: false, error };
    const offer = handshakeSchema.safeParse(parseJson(lines.join('\n')));
    if (!offer.success || offer.data.protocol !== protocol) {
      return broker('RESPONSE', `the answer is no handshake of a router of the kind ${protocol}`);
    }
    const version = Math.min(newestVersion, offer.data.max);
    if (version < Math.max(OLDEST_VERSION[protocol], offer.data.min)) {
      return broker('VERSION', `it speaks versions ${offer.data.min} to ${offer.data.max}`);
    }
    return { ok: true, value: version };
  }

  /** What one line says about the command with its id. */
  function resultOf({ answer }: AnswerLine, op: string): RouterResult<Exclude<Answer, { op: 'ERR' }>> {
    const parsed = answerSchema.safeParse(answer);
    if (!parsed.success) return broker('RESPONSE', `the answer to ${op} is invalid`);
    const data = parsed.data as Operation<Answer>;
    if (data.op !== 'ERR') return { ok: true, value: data as Exclude<Answer, { op: 'ERR' }> };
    const source = protocol === 'smp' ? 'SMP' : 'NTF';
    return { ok: false, error: withoutOwnWords(source, data.error!) };
  }

  type Results = RouterResult<Exclude<Answer, { op: 'ERR' }>>[];

  /** @returns with `silent`, nothing came from the router at all. */
  async function exchangeCommands(
    session: string,
    address: RouterAddress,
    commandsIn: (version: number) => UnsignedCommand[],
  ): Promise<{ value: Results; silent?: RouterError }> {
    const version = await versionOf(session, address);
    if (!version.ok) {
      const value = commandsIn(newestVersion).map(() => version);
      return { value, ...(isRetried(version.error) ? { silent: version.error } : {}) };
    }
    const commands = commandsIn(version.value).map((command, index) => signed(address, command, index));
    const results = new Map<string, Results[number]>();
    const isSingle = protocol === 'ntf' && version.value < NTF_VERSION_WITH_BATCHES;
    const { blocks, tooLarge } = packBlocks(commands, { blockBytes, isSingle });
    for (const { id, command } of tooLarge) {
      results.set(id, broker('TRANSPORT', `${command.op} is larger than a block of ${blockBytes} bytes`));
    }
    const sent = new Map(blocks.flat().map((command) => [command.id, command]));
    let silent: RouterError | undefined;
    if (sent.size > 0) {
      let unusable: RouterError | undefined;
      let hasSpoken = false;
      const error = await connections.exchange(session, address, {
        method: 'POST',
        path: commandsPath(protocol),
        body: JSON.stringify({ version: version.value, blocks }),
        timeoutMs: commandTimeoutMs,
        maxBytes: sent.size * ANSWER_BYTES,
        onLine: (text) => {
          hasSpoken = true;
          const line = answerLineSchema.safeParse(parseJson(text));
          const command = line.success ? sent.get(line.data.id) : undefined;
          if (!line.success || !command || (line.data.entity ?? command.entity) !== command.entity) {
            unusable ??= broker('RESPONSE', 'a line of the answer answers no command').error;
          } else if (!results.has(command.id)) {
            results.set(command.id, resultOf(line.data as AnswerLine, command.command.op));
          }
        },
      });
      if (error) versions.delete(endpointOf(address));
      if (error && isRetried(error) && !hasSpoken) silent = error;
      const rest = error ?? unusable ?? broker('TRANSPORT', 'fewer answers than commands').error;
      for (const id of sent.keys()) if (!results.has(id)) results.set(id, { ok: false, error: rest });
    }
    return { value: commands.map(({ id }) => results.get(id)!), ...(silent ? { silent } : {}) };
  }

  return {
    async send(session, address, commandsIn) {
      const outcome = await turns.take(endpointOf(address), session, () =>
        exchangeCommands(session, address, commandsIn),
      );
      if ('value' in outcome) return outcome.value;
      return commandsIn(newestVersion).map(() => ({ ok: false, error: outcome.silent }));
    },
    close: () => connections.close(),
  };
}

function signed(
  address: RouterAddress,
  { entity, command, privateKey }: UnsignedCommand,
  index: number,
): SentCommand {
  const id = String(index + 1);
  return {
    id,
    ...(entity === undefined ? {} : { entity }),
    command,
    ...(privateKey
      ? { signature: signCommand({ router: address.keyHash, id, entity, command }, privateKey) }
      : {}),
  };
}

function broker(code: string, detail: string): { ok: false; error: RouterError } {
  return { ok: false, error: { source: 'BROKER', code, detail } };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
