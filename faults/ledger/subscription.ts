/** The judge of subscriptions: what the agent was told of its connections against what routers hold, and the rows. */
import type { Verdict } from './verdict.ts';
import { noVerdict } from './verdict.ts';

/** A command of the agent about a connection. */
export interface ConnectionAccount {
  /** Connections that it was told it has. */
  created: ReadonlySet<string>;
  /** Connections that it asked to delete, whether it was told or not; and those of them where it was told. */
  deletionAsked: ReadonlySet<string>;
  deletionTold: ReadonlySet<string>;
  /** A store was put back: routers may hold subscriptions of connections that the service has forgotten. */
  hasForgotten: boolean;
}

/** Columns of `connections` and `ntf_subscriptions`. */
export interface ConnectionRow {
  conn_id: string;
  /** It is to have a subscription. */
  is_wanted: boolean;
  status: string | null;
  ntf_action: string | null;
  smp_ntf_id: string | null;
  ntf_sub_id: string | null;
}

export interface RouterState {
  /** Of all messaging routers. */
  notifierIds: readonly string[];
  /** Of the notification router. */
  subscriptions: readonly { subscriptionId: string; notifierId: string; status: string }[];
}

const LIVE = ['NEW', 'PENDING', 'ACTIVE', 'INACTIVE', 'SERVICE'];

/** In what rows and routers differ; empty when nothing is left to do. */
export function disagreements(
  rows: readonly ConnectionRow[],
  routers: RouterState,
  hasForgotten: boolean,
): string[] {
  const problems: string[] = [];
  const notifiers = new Set(routers.notifierIds);
  const live = routers.subscriptions.filter(({ status }) => LIVE.includes(status));
  const byId = new Map(live.map((subscription) => [subscription.subscriptionId, subscription]));
  const wanted = rows.filter(({ is_wanted }) => is_wanted);
  for (const row of wanted) {
    const subscription = byId.get(row.ntf_sub_id ?? '');
    if (!row.status?.startsWith('CREATED ') || row.ntf_action !== 'C')
      problems.push(`${row.conn_id} is ${row.status}`);
    else if (!subscription) problems.push(`${row.conn_id} has no live subscription`);
    else if (subscription.notifierId !== row.smp_ntf_id)
      problems.push(`${row.conn_id} has another notifier there`);
    else if (!notifiers.has(row.smp_ntf_id)) problems.push(`${row.conn_id} has no notifier`);
  }
  const owners = new Map<string, string>();
  for (const { conn_id, ntf_sub_id: id } of wanted) {
    if (id !== null && owners.has(id))
      problems.push(`${conn_id} and ${owners.get(id)} have one subscription`);
    if (id !== null) owners.set(id, conn_id);
  }
  const notifierIds = new Set(rows.map(({ smp_ntf_id }) => smp_ntf_id));
  for (const { subscriptionId, notifierId } of live) {
    // No router can be asked what it holds.
    if (hasForgotten && !notifierIds.has(notifierId)) continue;
    if (!owners.has(subscriptionId)) problems.push(`subscription ${subscriptionId} is left over`);
  }
  return problems;
}

export function judgeSubscriptions(
  rows: readonly ConnectionRow[],
  routers: RouterState,
  account: ConnectionAccount,
): Verdict {
  const verdict = noVerdict();
  verdict.wrong.push(...disagreements(rows, routers, account.hasForgotten));
  const known = new Set(rows.map(({ conn_id }) => conn_id));
  for (const id of account.created) {
    if (!known.has(id) && !account.deletionAsked.has(id))
      verdict.lost.push(`connection ${id} was acknowledged, and is gone`);
  }
  for (const id of account.deletionTold) {
    if (known.has(id)) verdict.wrong.push(`connection ${id} was deleted, and is there`);
  }
  verdict.figures = {
    connections: rows.length,
    acknowledged: account.created.size,
    subscriptions: rows.filter(({ is_wanted }) => is_wanted).length,
  };
  return verdict;
}
