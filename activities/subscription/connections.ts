/**
 * Connections and their queues, as operators change them. Each change is one transaction, and returns the commands that
 * follow from it, which the supervisor queues. Creates and smp-deletes follow only when the instant gate is open.
 */
import { Context } from '@temporalio/activity';
import type {
  Command,
  ConnectionsSubscribed,
  DeletedConnections,
  ToggleConnections,
  ToggledConnections,
} from '../../workflows/subscription/contract.ts';
import { inTransaction, run } from '../transactions.ts';
import { isGateOpen, loadToken } from './agents.ts';
import type { SubscriptionResources } from './batches.ts';
import { lockRecords } from './claims.ts';
import { DELETE_CONNECTIONS, LOAD_FLAGS, SET_SUBSCRIBED, TOGGLE_CONNECTIONS } from './connection-rows.ts';

/** The result of a change, and the commands that follow from it. */
export interface Changed<Result> {
  result: Result;
  commands: Command[];
}

export function createConnectionWork(resources: SubscriptionResources) {
  const { db, log } = resources;

  return {
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

    /**
     * Deletes connections, and has their subscriptions ended, whatever the gate says. The application keeps the queues: of
     * them, only the notifiers go (credentials.ts).
     */
    async deleteConnections(agentId: string, connIds: string[]): Promise<Changed<DeletedConnections>> {
      // What an attempt that was cut off has deleted, a sweep may have removed since, but not its record.
      const isRepeated = mayBeRepeated();
      const deleted = await inTransaction(db, async (client) => {
        // A worker that ends a subscription sees that its connection is to go, or has ended it before.
        await lockRecords(client, agentId, connIds);
        return idsIn(await run<IdRow>(client, DELETE_CONNECTIONS, [agentId, connIds]));
      });
      log.info({ agent_id: agentId, deleted: deleted.length }, 'connections deleted');
      return {
        result: { deleted: deleted.length, unknown: without(connIds, deleted) },
        commands: commandsOf({ reconcile: isRepeated ? connIds : deleted }),
      };
    },
  };
}

type IdRow = { conn_id: string };
type FlagRow = IdRow & { is_enabled: boolean };

/** Of an attempt of a workflow task that was lost nothing is known, so each local one counts as a repetition. */
function mayBeRepeated(): boolean {
  const { attempt, isLocal } = Context.current().info;
  return attempt > 1 || isLocal;
}

const idsIn = (rows: readonly IdRow[]): string[] => rows.map(({ conn_id }) => conn_id);

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
