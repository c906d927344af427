/** The commands of a supervisor that wait, as a list that does not grow by what it holds already. Pure. */
import type { Command, CommandKind } from './contract.ts';
import { MAX_CONNECTIONS, MAX_WAITING_COMMANDS, MAX_WAITING_CONNECTIONS } from './contract.ts';

/** Whether nothing more is to be asked for before some commands were carried out. A run hands all of them to the next. */
export function isFull(queue: readonly Command[]): boolean {
  if (queue.length >= MAX_WAITING_COMMANDS) return true;
  return queue.reduce((sum, { connIds = [] }) => sum + connIds.length, 0) >= MAX_WAITING_CONNECTIONS;
}

/**
 * Queues a command. What waits already is not queued again: a connection is left out whose last command that waits is
 * of the same kind. What is left joins the last command if it is of the same kind and has room.
 */
export function enqueue(queue: Command[], { kind, connIds }: Command): void {
  if (!connIds) {
    if (!isWaitingForAll(queue, kind)) queue.push({ kind });
    return;
  }
  const wanted = notWaiting(queue, kind, connIds);
  if (wanted.length === 0) return;
  const last = queue.at(-1);
  const joined = last?.kind === kind && last.connIds ? [...last.connIds, ...wanted] : [];
  if (joined.length > 0 && joined.length <= MAX_CONNECTIONS)
    queue[queue.length - 1] = { kind, connIds: joined };
  else queue.push({ kind, connIds: wanted });
}

/**
 * What a flush leaves of the commands that wait: all but Creates, and the end of all, which follows it. That one is about
 * connections that are switched on; those whose subscriptions are ended by name may be switched off.
 */
export function afterFlush(queue: readonly Command[]): Command[] {
  return queue.filter(({ kind, connIds }) => kind !== 'create' && connIds);
}

function isWaitingForAll(queue: readonly Command[], kind: CommandKind): boolean {
  const last = queue.findLast(
    (command) => command.kind !== 'reconcile' && (!command.connIds || command.kind !== kind),
  );
  return last?.kind === kind;
}

function notWaiting(queue: readonly Command[], kind: CommandKind, connIds: readonly string[]): string[] {
  const waiting = new Set<string>();
  const open = new Set(connIds);
  for (const command of queue.toReversed()) {
    if (!command.connIds) {
      // A Create for all leaves alone what is switched off, which is what an smp-delete by name is about.
      if (command.kind === 'smp-delete' && kind === 'create') break;
      continue;
    }
    for (const connId of command.connIds) {
      if (open.delete(connId) && command.kind === kind) waiting.add(connId);
    }
  }
  return [...new Set(connIds)].filter((connId) => !waiting.has(connId));
}
