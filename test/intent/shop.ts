/** A producer's own PostgreSQL: a database beside the one of the service, with an outbox. */
import { readFileSync } from 'node:fs';
import pg from 'pg';
import { readOutboxSql } from '../../client/outbox.ts';
import type { Slot } from '../harness.ts';

/** @returns the first statement of a page that begins so. */
export const statementIn = (page: string, verb: string): string =>
  new RegExp(`^${verb} [^;]*;`, 'm').exec(readFileSync(page, 'utf8'))![0];

export interface Shop {
  database: string;
  db: pg.Pool;
  drop(): Promise<void>;
}

/** @param serverDsn any database of the server that it is to be on, with the role that is to own it. */
export async function createShop(
  { slot, db: admin, endpoints }: Slot,
  serverDsn = endpoints.postgresDsn,
): Promise<Shop> {
  const database = `shop_${slot}_${Date.now()}`;
  await admin.query(`CREATE DATABASE ${database}`);
  const dsn = new URL(serverDsn);
  dsn.pathname = `/${database}`;
  const db = new pg.Pool({ connectionString: dsn.href, max: 6 });
  db.on('error', () => undefined);
  await db.query(await readOutboxSql());
  return {
    database,
    db,
    async drop() {
      await db.end();
      await admin.query(`DROP DATABASE ${database} WITH (FORCE)`);
    },
  };
}
