/**
 * Keys of encryption: what is still sealed with each, and how to get an old one out of use. To rotate: put the new key
 * first everywhere, `renew`, and take the old one out once `status` does not name it any more.
 */
import type { WorkflowClient } from '@temporalio/client';
import type { Pool } from 'pg';
import type { KeyBox, KeyBoxKey } from '../api/key-box.ts';
import { openIfPossible, sealingKeyOf } from '../api/key-box.ts';
import { PLAIN, sealingKeysIn } from '../api/payload-codec.ts';
import { isStuck, unlessGone } from '../api/stuck-workflow.ts';
import type { SealedColumn } from '../api/subscription/rows.ts';
import { SEALED_COLUMNS } from '../api/subscription/rows.ts';
import type { Requester } from './actions.ts';
import { byAuthor } from './actions.ts';
import { LONG_LIVED_RUNS, RENEW_SIGNAL } from '../workflows/renewal-contract.ts';
import type { OperatorResources } from './resources.ts';
import type { WaitOptions } from './temporal.ts';
import { waitUntil } from './temporal.ts';

/** Histories that are read concurrently. */
const PARALLEL = 8;
/** Rows that one statement reads. */
const PAGE_SIZE = 500;

/** Whether a key seals what is new, only opens what is old, or is not configured. */
export type KeyUse = 'seals' | 'opens' | 'missing';

export interface PayloadKeyView {
  /** `in plain` for what nothing has sealed. */
  key: string;
  use: KeyUse;
  /** Workflows that run, and whose history needs the key. */
  open: number;
  /** Workflows that have ended and are kept; absent when they were not asked for. */
  retained?: number;
}

export interface SubscriptionKeyView {
  key: string;
  use: KeyUse;
  /** Values by table and column. */
  values: Record<string, number>;
}

export interface ConfiguredKeys {
  payload: readonly KeyBoxKey[];
  subscription: readonly KeyBoxKey[];
}

export interface RenewedKeys {
  /** Long-lived workflows that were asked to go on in a new run. */
  workflows: number;
  /** Values in rows that were sealed again. */
  values: number;
  /** Workflows that have not gone on in a new run within the time. */
  waiting: string[];
  /** Values that no configured key opens. */
  unreadable: number;
}

export function keyOperations({ temporal, db, keyBox }: OperatorResources) {
  return {
    /**
     * What each key still seals, in histories and in rows. Reads every history that it looks at.
     *
     * @param options.withRetained also histories of workflows that have ended: as many as the retention keeps.
     */
    async status(configured: ConfiguredKeys, { withRetained = false } = {}) {
      const count = async (query: string): Promise<Counts> => {
        const counts: Counts = new Map();
        const histories = temporal.workflow.list({ query }).intoHistories({ concurrency: PARALLEL });
        for await (const { history } of histories)
          for (const key of sealingKeysIn(history)) addTo(counts, key);
        return counts;
      };
      const open = await count(`ExecutionStatus = 'Running'`);
      const retained = withRetained ? await count(`ExecutionStatus != 'Running'`) : undefined;
      const keys = viewsOf(configured.payload, [...open.keys(), ...(retained?.keys() ?? [])]);
      const payload = keys.map((view): PayloadKeyView => ({
        ...{ ...view, open: open.get(view.key) ?? 0 },
        ...(retained ? { retained: retained.get(view.key) ?? 0 } : {}),
      }));
      return { payload, subscription: await subscriptionStatus(db, configured.subscription) };
    },

    /**
     * Has every long-lived workflow go on in a new run, which is sealed with the first key, and seals the values in rows
     * again. A run that is stuck is ended: processes start another one, a worker of subscriptions when it has work. Workflows of
     * single notifications and jobs are left alone: they end by themselves.
     */
    renew(
      configured: ConfiguredKeys,
      { requestedBy, ...wait }: WaitOptions & Requester,
    ): Promise<RenewedKeys> {
      return byAuthor({ db }, { action: 'keys renew', requestedBy }, () => renewAll(configured, wait));
    },
  };

  async function renewAll(configured: ConfiguredKeys, wait: WaitOptions): Promise<RenewedKeys> {
    const asked = new Set<string>();
    for await (const { workflowId, runId } of temporal.workflow.list({ query: LONG_LIVED_RUNS })) {
      asked.add(runId);
      await renewRun(temporal.workflow, workflowId, runId);
    }
    const { values, unreadable } =
      configured.subscription.length === 0 || !keyBox
        ? { values: 0, unreadable: 0 }
        : await sealAgain(db, keyBox(), configured.subscription[0]!.id);
    let waiting: string[] = [];
    await waitUntil(async () => {
      waiting = [];
      for await (const { workflowId, runId } of temporal.workflow.list({ query: LONG_LIVED_RUNS })) {
        if (asked.has(runId)) waiting.push(workflowId);
      }
      return waiting.length === 0 || undefined;
    }, wait);
    return { workflows: asked.size, values, unreadable, waiting };
  }
}

/** One that has ended or gone on by itself since it was listed is left alone. */
async function renewRun(workflows: WorkflowClient, workflowId: string, runId: string): Promise<void> {
  const run = workflows.getHandle(workflowId, runId);
  await unlessGone(async () => {
    if (await isStuck(workflows, await run.describe()))
      await run.terminate('its workflow task failed again and again');
    else await run.signal(RENEW_SIGNAL);
  });
}

type Counts = Map<string, number>;

const addTo = (counts: Counts, key: string, count = 1): void =>
  void counts.set(key, (counts.get(key) ?? 0) + count);

const useOf = (key: string, configured: readonly KeyBoxKey[]): KeyUse => {
  if (key === (configured[0]?.id ?? PLAIN)) return 'seals';
  return key === PLAIN || configured.some(({ id }) => id === key) ? 'opens' : 'missing';
};

/** Keys with their use: configured ones first, in their order. */
function viewsOf(
  configured: readonly KeyBoxKey[],
  found: readonly string[],
): Pick<PayloadKeyView, 'key' | 'use'>[] {
  const keys = new Set([...configured.map(({ id }) => id), ...found.toSorted()]);
  return Array.from(keys, (key) => ({ key, use: useOf(key, configured) }));
}

async function subscriptionStatus(
  db: Pool,
  configured: readonly KeyBoxKey[],
): Promise<SubscriptionKeyView[]> {
  const byKey = new Map<string, Counts>();
  for (const { table, column } of SEALED_COLUMNS) {
    const { rows } = await db.query<{ head: Buffer; count: number }>(
      `SELECT substring(${column} FOR 2 + get_byte(${column}, 1)) AS head, count(*)::int AS count
         FROM subscriptions.${table} WHERE length(${column}) > 2 GROUP BY 1`,
    );
    for (const { head, count } of rows) {
      const key = sealingKeyOf(head) ?? PLAIN;
      const values: Counts = byKey.get(key) ?? new Map<string, number>();
      addTo(values, `${table}.${column}`, count);
      byKey.set(key, values);
    }
  }
  return viewsOf(configured, [...byKey.keys()]).map((view) => ({
    ...view,
    values: Object.fromEntries(byKey.get(view.key) ?? []),
  }));
}

/** Row by row under its lock: a service writes the same rows. One that changed meanwhile is sealed with the new key. */
async function sealAgain(
  db: Pool,
  box: KeyBox,
  newest: string,
): Promise<{ values: number; unreadable: number }> {
  const sealed = { values: 0, unreadable: 0 };
  for (const column of SEALED_COLUMNS) {
    for (let after: string | undefined; ;) {
      const { rows } = await db.query<SealedRow>(listOf(column), [after ?? null, PAGE_SIZE]);
      for (const row of rows) {
        if (sealingKeyOf(row.sealed) === newest) continue;
        const context = column.contextOf(row.agent_id, row.subject);
        const plain = openIfPossible(box, row.sealed, context);
        if (plain === undefined) {
          sealed.unreadable += 1;
          continue;
        }
        const values = [row.key, row.sealed, box.seal(plain, context)];
        const { rowCount } = await db.query(replaceOf(column), values);
        sealed.values += rowCount ?? 0;
      }
      if (rows.length < PAGE_SIZE) break;
      after = rows.at(-1)!.key;
    }
  }
  return sealed;
}

interface SealedRow {
  key: string;
  agent_id: string;
  subject: string;
  sealed: Buffer;
}

const listOf = (of: SealedColumn): string => `
  SELECT ${of.key}::text AS key, agent_id, ${of.subject}::text AS subject, ${of.column} AS sealed
    FROM subscriptions.${of.table}
   WHERE ${of.column} IS NOT NULL AND ($1::text IS NULL OR ${of.key} > $1::text::${of.keyType})
   ORDER BY ${of.key}
   LIMIT $2`;

const replaceOf = (of: SealedColumn): string => `
  UPDATE subscriptions.${of.table} SET ${of.column} = $3
   WHERE ${of.key} = $1::${of.keyType} AND ${of.column} = $2`;
