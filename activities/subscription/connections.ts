/**
 * Connections and their queues, as operators change them. Each change is one transaction, and returns the commands that
 * follow from it, which the supervisor queues. Creates and smp-deletes follow only when the instant gate is open.
 */
import { KeyBoxError } from '../../api/key-box.ts';
import { messageSecretContext, recipientKeyContext } from '../../api/subscription/sealed-columns.ts';
import { ApplicationFailure, Context } from '@temporalio/activity';
import pLimit from 'p-limit';
import type { PoolClient } from 'pg';
import { SUBSCRIPTION_REFUSED } from '../../workflows/failures.ts';
import type {
  Command,
  ConnectionsSubscribed,
  CreatedConnection,
  DeletedConnections,
  NewConnection,
  RouterKey,
  ToggleConnections,
  ToggledConnections,
} from '../../workflows/subscription/contract.ts';
import type { ServerKey } from '../../workflows/subscription/rules.ts';
import { query } from '../postgres.ts';
import { inTransaction, run } from '../transactions.ts';
import { PAUSED, isGateOpen, loadAgent, loadToken } from './agents.ts';
import type { SubscriptionResources } from './batches.ts';
import { UNUSABLE_KEY, unreadableItem, whileBeating } from './batches.ts';
import { kickAll } from './commands.ts';
import {
  DELETE_CONNECTIONS,
  INSERT_CONNECTION,
  INSERT_QUEUE,
  LIST_REMOVED_SERVERS,
  LOAD_CONNECTION,
  LOAD_FLAGS,
  SET_SUBSCRIBED,
  TOGGLE_CONNECTIONS,
} from './connection-rows.ts';
import { errorText } from './events.ts';
import type { NewQueueAnswer, NewQueueRequest, RouterAddress, RouterResult } from './router/ports.ts';
import { generateAuthKeys, generateDhKeys, secretOrNothing } from './router/signing.ts';
import { INSERT_SMP_SERVER, routerPassword, routerValues, takeOverFingerprint } from './router-rows.ts';

/** Queues that are made concurrently. */
const PARALLEL_CONNECTIONS = 10;

/** The result of a change, and the commands that follow from it. */
export interface Changed<Result> {
  result: Result;
  commands: Command[];
}

/** A connection to make under an id that stays the same in each attempt. */
export interface ConnectionOrder extends NewConnection {
  connId: string;
}

interface MadeQueue {
  answer: NewQueueAnswer;
  recipientPrivateKey: Buffer;
  /** By which its messages are read. */
  messageSecret: Buffer;
}

export function createConnectionWork(resources: SubscriptionResources) {
  const { db, log, keyBox, messagingRouter } = resources;

  return {
    /**
     * Makes connections with a queue each. A queue whose answer was lost stays unused on its router.
     */
    async createConnections(
      agentId: string,
      orders: ConnectionOrder[],
    ): Promise<Changed<CreatedConnection[]>> {
      await requireUsable(agentId);
      await saveServers(
        agentId,
        orders.map(({ server }) => server),
      );
      const atMost = pLimit(PARALLEL_CONNECTIONS);
      const made = await whileBeating(() =>
        Promise.all(orders.map((order) => atMost(() => createConnection(agentId, order)))),
      );
      const toCreate = made.flatMap(({ result, isWanted }) =>
        isWanted && 'connId' in result ? [result.connId] : [],
      );
      const result = made.map((one) => one.result);
      log.info({ agent_id: agentId, asked: orders.length, wanted: toCreate.length }, 'connections created');
      return { result, commands: commandsOf({ create: toCreate }) };
    },

    /** Switches notifications of connections. One that is so already is left alone. */
    async toggleConnections(
      agentId: string,
      { connIds, enable }: ToggleConnections,
    ): Promise<Changed<ToggledConnections>> {
      // What an attempt that was cut off has changed counts as changed: its commands were lost with it.
      const isRepeated = mayBeRepeated();
      const { known, changed, isOpen } = await inTransaction(db, async (client) => ({
        isOpen: isGateOpen(await loadToken(client, agentId)),
        known: idsIn(await run<IdRow>(client, LOAD_FLAGS, [agentId, connIds])),
        changed: idsIn(await run<IdRow>(client, TOGGLE_CONNECTIONS, [agentId, connIds, enable, isRepeated])),
      }));
      const commands = isOpen ? commandsOf({ [enable ? 'create' : 'smp-delete']: changed }) : [];
      return toggled(connIds, known, changed.length, commands);
    },

    /** Notes whether the agent receives from connections, and has the subscriptions of those it does looked after. */
    async setSubscribed(
      agentId: string,
      { connIds, isSubscribed }: ConnectionsSubscribed,
    ): Promise<Changed<ToggledConnections>> {
      const { rows, isOpen } = await inTransaction(db, async (client) => ({
        isOpen: isGateOpen(await loadToken(client, agentId)),
        rows: await run<FlagRow>(client, SET_SUBSCRIBED, [agentId, connIds, isSubscribed]),
      }));
      const wanted = rows.filter(({ is_enabled }) => is_enabled);
      const unwanted = rows.filter(({ is_enabled }) => !is_enabled);
      const commands =
        isOpen && isSubscribed ? commandsOf({ create: idsIn(wanted), 'smp-delete': idsIn(unwanted) }) : [];
      return toggled(connIds, idsIn(rows), rows.length, commands);
    },

    /** Deletes connections; their queues go from the routers after that (queues.ts), imported ones stay there. Not behind the gate. */
    async deleteConnections(agentId: string, connIds: string[]): Promise<Changed<DeletedConnections>> {
      // What an attempt that was cut off has deleted, a sweep may have removed since, but not its record.
      const isRepeated = mayBeRepeated();
      const deleted = idsIn(await query<IdRow>(db, DELETE_CONNECTIONS, [agentId, connIds]));
      log.info({ agent_id: agentId, deleted: deleted.length }, 'connections deleted');
      await wakeRemoval(agentId, deleted);
      return {
        result: { deleted: deleted.length, unknown: without(connIds, deleted) },
        commands: commandsOf({ 'delete-sub': isRepeated ? connIds : deleted }),
      };
    },
  };

  async function createConnection(
    agentId: string,
    order: ConnectionOrder,
  ): Promise<{ result: CreatedConnection; isWanted: boolean }> {
    const { connId, userId, server, enableNotifications = true } = order;
    const token = await loadToken(db, agentId);
    const known = async () => (await query<ConnectionRow>(db, LOAD_CONNECTION, [agentId, connId]))[0];
    const asBefore = ({ has_credentials: hasCredentials }: ConnectionRow) => ({
      result: { connId, hasCredentials },
      isWanted: isGateOpen(token) && enableNotifications,
    });
    const before = await known();
    if (before) return asBefore(before);
    // It may have been paused while others were made.
    if ((await loadAgent(db, agentId))?.isPaused) {
      return { result: { error: errorText(PAUSED) }, isWanted: false };
    }
    const made = await makeQueue(agentId, server, userId);
    if (!made.ok) return { result: { error: errorText(made.error) }, isWanted: false };
    const isOpen = await inTransaction(db, async (client) => {
      const inserted = await run(client, INSERT_CONNECTION, [agentId, connId, userId, enableNotifications]);
      // An attempt that was thought lost has made it meanwhile: its queue counts, and this one is one too many.
      if (inserted.length === 0) return undefined;
      await saveQueue(client, agentId, connId, server, made.value);
      const current = await loadToken(client, agentId);
      return isGateOpen(current);
    });
    if (isOpen === undefined) {
      const other = await known();
      return other
        ? asBefore(other)
        : { result: { error: 'AGENT CONN NOT_FOUND: it was deleted meanwhile' }, isWanted: false };
    }
    return {
      result: { connId, hasCredentials: false },
      isWanted: isOpen && enableNotifications,
    };
  }

  async function makeQueue(
    agentId: string,
    server: RouterKey,
    userId: number,
  ): Promise<RouterResult<MadeQueue>> {
    const address = await withPassword(agentId, server);
    if (!address.ok) return address;
    const recipient = generateAuthKeys();
    const messages = generateDhKeys();
    const request: NewQueueRequest = {
      address: address.value,
      userId,
      recipientPublicKey: recipient.publicKey,
      recipientPrivateKey: recipient.privateKey,
      recipientDhPublicKey: messages.publicKey,
      // Nobody but the service has the recipient's key, so a sender secures the queue by itself.
      senderMaySecure: true,
    };
    const result = await messagingRouter.createQueue(request);
    if (!result.ok) return result;
    const messageSecret = secretOrNothing(result.value.routerDhPublicKey, messages.privateKey);
    if (!messageSecret) return { ok: false, error: UNUSABLE_KEY };
    return {
      ok: true,
      value: { answer: result.value, recipientPrivateKey: recipient.privateKey, messageSecret },
    };
  }

  async function withPassword(agentId: string, server: RouterKey): Promise<RouterResult<RouterAddress>> {
    try {
      const basicAuth = await routerPassword(db, keyBox, agentId, server);
      return { ok: true, value: { ...server, ...(basicAuth === undefined ? {} : { basicAuth }) } };
    } catch (error) {
      if (!(error instanceof KeyBoxError)) throw error;
      return { ok: false, error: unreadableItem('', error).error };
    }
  }

  async function saveQueue(
    client: PoolClient,
    agentId: string,
    connId: string,
    server: RouterKey,
    { answer, recipientPrivateKey, messageSecret }: MadeQueue,
  ): Promise<void> {
    const { recipientId, senderId } = answer;
    await takeOverFingerprint(client, agentId, server);
    const sealed = keyBox.seal(recipientPrivateKey, recipientKeyContext(agentId, recipientId));
    const sealedSecret = keyBox.seal(messageSecret, messageSecretContext(agentId, recipientId));
    await run(client, INSERT_QUEUE, [
      agentId,
      connId,
      server.host,
      server.port,
      server.keyHash,
      recipientId,
      senderId,
      sealed,
      sealedSecret,
      false,
    ]);
  }

  /** @throws ApplicationFailure `SubscriptionRefused` when the agent must not use the network. */
  async function requireUsable(agentId: string): Promise<void> {
    const agent = await loadAgent(db, agentId);
    const refuse = (message: string) => ApplicationFailure.nonRetryable(message, SUBSCRIPTION_REFUSED);
    if (!agent) throw refuse(`there is no agent ${agentId}`);
    if (!agent.isOpen) throw refuse(`agent ${agentId} is closed`);
    if (agent.isPaused) throw refuse(`agent ${agentId} is paused: resume it first`);
  }

  /** Wakes who deletes the queues of connections that are not used any more. */
  async function wakeRemoval(agentId: string, connIds: readonly string[]): Promise<void> {
    const servers = await query<ServerKey>(db, LIST_REMOVED_SERVERS, [agentId, connIds]);
    // Those that cannot be woken are woken by the sweep.
    await kickAll(
      resources,
      servers.map((server) => ({ agentId, pool: 'smp-que-del', server })),
    );
  }

  async function saveServers(agentId: string, servers: readonly RouterKey[]): Promise<void> {
    const distinct = new Map(servers.map((server) => [nameOf(server), server]));
    for (const [, server] of [...distinct].sort(([one], [other]) => (one < other ? -1 : 1))) {
      await query(db, INSERT_SMP_SERVER, routerValues(agentId, server));
    }
  }
}

type IdRow = { conn_id: string };
type FlagRow = IdRow & { is_enabled: boolean };
type ConnectionRow = FlagRow & { user_id: number; has_credentials: boolean };

/** Of an attempt of a workflow task that was lost nothing is known, so each local one counts as a repetition. */
function mayBeRepeated(): boolean {
  const { attempt, isLocal } = Context.current().info;
  return attempt > 1 || isLocal;
}

const idsIn = (rows: readonly IdRow[]): string[] => rows.map(({ conn_id }) => conn_id);
const nameOf = ({ host, port }: RouterKey): string => `${host}:${port}`;

function without(all: readonly string[], known: readonly string[]): string[] {
  const found = new Set(known);
  return all.filter((connId) => !found.has(connId));
}

function commandsOf(lists: Partial<Record<Command['kind'], string[]>>): Command[] {
  return Object.entries(lists).flatMap(([kind, connIds]) =>
    connIds.length === 0 ? [] : [{ kind: kind as Command['kind'], connIds }],
  );
}

function toggled(
  asked: readonly string[],
  known: readonly string[],
  changed: number,
  commands: Command[],
): Changed<ToggledConnections> {
  const commanded = commands.map(({ kind, connIds = [] }) => ({ kind, connections: connIds.length }));
  return { result: { changed, unknown: without(asked, known), commanded }, commands };
}
