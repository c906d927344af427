/**
 * How `doctor` looks at everything that the service depends on. Each check is bounded in time and spoils no other check.
 * Checks that need a server which does not answer are left out, because one line about the server says all.
 */
import type { Pool } from 'pg';
import { SelfExplanatoryError } from '../api/errors.ts';
import { causeOf } from '../client/errors.ts';
import { within } from '../client/wait-until.ts';

/** Longest time for one check, ms. */
const CHECK_LIMIT_MS = 5_000;

export interface Diagnosis {
  status: 'ok' | 'warn' | 'error';
  /** What was found. */
  detail: string;
  /** What to do about it. */
  hint?: string;
}

export interface Finding extends Diagnosis {
  name: string;
}

/** `limitMs` for one that may take longer than others. */
export type Check = readonly [name: string, run: () => Promise<Diagnosis> | Diagnosis, limitMs?: number];

/** Checks of one server: the first says whether it answers, the others need that. */
export type CheckGroup = readonly [reach: Check, ...others: Check[]];

export const ok = (detail: string): Diagnosis => ({ status: 'ok', detail });
export const warn = (detail: string, hint: string): Diagnosis => ({ status: 'warn', detail, hint });
export const error = (detail: string, hint: string): Diagnosis => ({ status: 'error', detail, hint });
export const warnIf = (isWrong: boolean, detail: string, hint: string): Diagnosis =>
  isWrong ? warn(detail, hint) : ok(detail);

/** A check of what a statement finds. */
export const rowCheck = <Rows extends object[]>(
  db: Pool,
  name: string,
  statement: string,
  judge: (rows: Rows) => Diagnosis,
): Check => [name, async () => judge((await db.query(statement)).rows as Rows)];

/** Runs all groups side by side. Never throws: a check that does is an error itself. */
export async function diagnose(groups: readonly CheckGroup[], limitMs = CHECK_LIMIT_MS): Promise<Finding[]> {
  const findings = await Promise.all(
    groups.map(async ([reach, ...others]) => {
      const first = await carryOut(reach, limitMs);
      if (first.status === 'error') return [first];
      return [first, ...(await Promise.all(others.map((check) => carryOut(check, limitMs))))];
    }),
  );
  return findings.flat();
}

async function carryOut([name, run, limitMs]: Check, usualLimitMs: number): Promise<Finding> {
  try {
    return { name, ...(await within(limitMs ?? usualLimitMs, run())) };
  } catch (failure) {
    // One that explains itself names what to set.
    const [detail, hint] =
      failure instanceof SelfExplanatoryError
        ? [failure.message, 'set it as for the service, and look whether the server runs']
        : [causeOf(failure), 'the check itself failed; is the server reachable from here?'];
    return { name, ...error(detail, hint) };
  }
}
