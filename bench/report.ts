/** What the benchmark says at its end: one table for people, one document for programs. */
import { availableParallelism, cpus, loadavg, release, totalmem } from 'node:os';
import { tableOf } from '../dev/table.ts';
import type { Finding, Measurement, RowSpec, Target } from './measurement.ts';

/** A row as it is printed and written. */
export interface Row extends Omit<Finding, 'row' | 'value'> {
  name: string;
  meaning: string;
  unit: string;
  /** Null when it could not be measured on this machine. */
  value: number | null;
  /** `≥ 0.75`; null for a row that only informs. */
  target: string | null;
  /** Null without a target, and without a value. */
  ok: boolean | null;
}

/** @throws Error for a finding that the measurement has not declared. */
export function rowsOf({ name, rows }: Measurement, findings: readonly Finding[]): Row[] {
  const stray = findings.find(({ row }) => !rows.some((spec) => spec.name === row));
  if (stray) throw new Error(`${name} found a value for ${stray.row}, which it has not declared`);
  return rows.map((spec) =>
    rowOf(
      spec,
      findings.find(({ row }) => row === spec.name),
    ),
  );
}

function rowOf({ target, ...spec }: RowSpec, finding: Finding | undefined): Row {
  const { row: _row, value = null, ...rest } = finding ?? { row: spec.name };
  return {
    ...spec,
    value,
    target: target === undefined ? null : textOf(target),
    ok: target === undefined || value === null ? null : isMet(target, value),
    ...rest,
  };
}

const isMet = (target: Target, value: number): boolean =>
  'atMost' in target ? value <= target.atMost : value >= target.atLeast;

const textOf = (target: Target): string =>
  'atMost' in target ? `≤ ${target.atMost}` : `≥ ${target.atLeast}`;

/** The value of a row with its unit, such as `15.5/s` or `45.6 ms`. */
export const figureOf = ({ value, unit }: Row): string =>
  value === null ? 'not measured' : `${numberOf(value)}${unit.startsWith('/') ? '' : ' '}${unit}`.trim();

/** @returns lines without a last line feed. */
export function tableOfRows(rows: readonly Row[]): string {
  return tableOf(
    ['ROW', 'VALUE', '÷ CEILING', 'TARGET', '', 'MEANING'],
    rows.map((row) => [
      row.name,
      figureOf(row),
      row.ofCeiling === undefined ? '' : numberOf(row.ofCeiling),
      row.target ?? '',
      row.ok === null ? '' : row.ok ? 'ok' : 'MISSED',
      row.meaning,
    ]),
  );
}

/** What `--list` prints. */
export function tableOfTargets(measurements: readonly Measurement[]): string {
  return tableOf(
    ['ROW', 'TARGET', 'QUICK', 'MEANING'],
    measurements.flatMap(({ rows, isQuick }) =>
      rows.map(({ name, target, meaning }) => [
        name,
        target === undefined ? '' : textOf(target),
        isQuick ? 'yes' : '',
        meaning,
      ]),
    ),
  );
}

/** Three digits that count, and never an exponent. */
function numberOf(value: number): string {
  const decimals = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toFixed(Number.isInteger(value) ? 0 : decimals);
}

/** What the figures depend on. */
export function describeMachine() {
  return {
    cores: availableParallelism(),
    cpu: cpus()[0]?.model ?? 'unknown',
    memoryMb: Math.round(totalmem() / 1_048_576),
    system: `${process.platform} ${process.arch} ${release()}`,
    node: process.version,
    /** Of the last minute before the run: other work on the machine shows here. */
    load: loadavg()[0]!,
  };
}
