/**
 * Intents a second, and what one costs in CPU time: the service in all ways with all of its real work, against the
 * baselines. A round publishes its intents together and ends when the last workflow is closed.
 */
import { baselinesOf } from './baselines.ts';
import type { Bench, Mode } from './environment.ts';
import { burst } from './intent.ts';
import type { Finding, Measurement, RowSpec } from './measurement.ts';
import type { Round } from './rounds.ts';
import { peersOf } from './peers.ts';
import { interleave, medianOf } from './rounds.ts';
import { median, ratios } from './statistics.ts';

/** What is compared is measured one after the other: machines that are shared give more in one minute than in the next. */
const SHAPES = {
  'empty-workflow': 'one workflow that does nothing',
  on_failure: 'intents in mode on_failure, all real work',
  'ceiling-tree': 'an empty parent with two empty children',
  child: 'intents in mode child, all real work',
  'naive-tree': 'the real work in regular activities and children, as tutorials do it',
  direct: 'intents a hundred together, all real work',
  dbos: 'the real work on DBOS, one workflow of two steps',
  'dbos-tree': 'the real work on DBOS, a child for each route',
  'no-engine': 'the real work without an engine, of which nothing survives a crash',
} as const;
type Shape = keyof typeof SHAPES;
const SHAPE_NAMES = Object.keys(SHAPES) as Shape[];

/** Rounds of what is quicker are as much longer: otherwise they would end within a moment. */
const DIRECT_FACTOR = 20;
const PEERS_FACTOR = 4;
/** Share of a round that warms up compilers, caches and connections, for measurements that need only a rate. */
const WARM_UP_SHARE = 0.5;

const RATIOS: { of: Shape; to: Shape; atLeast?: number; meaning: string }[] = [
  {
    of: 'child',
    to: 'ceiling-tree',
    atLeast: 0.85,
    meaning: 'how much of what Temporal allows for this shape is left',
  },
  { of: 'child', to: 'naive-tree', atLeast: 1.3, meaning: 'what the settings and local activities gain' },
  {
    of: 'on_failure',
    to: 'empty-workflow',
    atLeast: 0.8,
    meaning: 'how much of the least that any workflow costs is left',
  },
  { of: 'on_failure', to: 'child', atLeast: 2.2, meaning: 'what first attempts without a child gain' },
  { of: 'direct', to: 'on_failure', atLeast: 8, meaning: 'what one workflow for many intents gains' },
  { of: 'direct', to: 'dbos', atLeast: 5, meaning: 'against one workflow on DBOS' },
  { of: 'direct', to: 'no-engine', atLeast: 0.5, meaning: 'how much of the bare work is left' },
  { of: 'on_failure', to: 'dbos', meaning: 'against one workflow on DBOS' },
  { of: 'child', to: 'dbos-tree', meaning: 'against a tree on DBOS' },
];
const ratioRow = ({ of, to }: { of: Shape; to: Shape }) => `throughput.${of}/${to}`;

/** Every row, and the shapes whose rounds it comes of: a rate stands beside the ceiling. */
const ROWS: { row: RowSpec; shapes: Shape[] }[] = [
  ...SHAPE_NAMES.map((shape) => ({
    row: {
      ...{ name: `throughput.${shape}`, unit: '/s', meaning: SHAPES[shape] },
      ...(shape === 'direct' ? { target: { atLeast: 1_000 } } : {}),
    },
    shapes: [shape, 'ceiling-tree' as const],
  })),
  ...RATIOS.map(({ atLeast, meaning, ...pair }) => ({
    row: {
      name: ratioRow(pair),
      unit: '',
      ...(atLeast === undefined ? {} : { target: { atLeast } }),
      meaning,
    },
    shapes: [pair.of, pair.to],
  })),
  ...SHAPE_NAMES.flatMap((shape) => [
    {
      row: {
        name: `throughput.${shape}.server-cpu`,
        unit: 'ms',
        meaning: 'CPU of Temporal, PostgreSQL and Redis for one',
      },
      shapes: [shape],
    },
    {
      row: {
        name: `throughput.${shape}.worker-cpu`,
        unit: 'ms',
        meaning: 'CPU of the worker process for one',
      },
      shapes: [shape],
    },
  ]),
];

export const throughput: Measurement = {
  name: 'throughput',
  meaning: 'intents a second, published together, and the CPU time of one',
  isQuick: true,
  rows: ROWS.map(({ row }) => row),

  async run(bench, isShown) {
    const rounds = await measure(bench, shapesFor(isShown));
    const measured = SHAPE_NAMES.filter((shape) => shape in rounds);
    const rateOf = (shape: Shape) => rounds[shape]!.map(({ perSecond }) => perSecond);
    for (const mode of ['child', 'on_failure'] as const) {
      if (rounds[mode]) rates(bench).set(mode, median(rateOf(mode)));
    }
    return [
      ...measured.map((shape): Finding => ({
        ...medianOf(`throughput.${shape}`, rateOf(shape)),
        ...(rounds['ceiling-tree']
          ? { ofCeiling: median(ratios(rateOf(shape), rateOf('ceiling-tree'))) }
          : {}),
        details: rounds[shape],
      })),
      ...RATIOS.filter(({ of, to }) => rounds[of] && rounds[to]).map((pair) =>
        medianOf(ratioRow(pair), ratios(rateOf(pair.of), rateOf(pair.to))),
      ),
      ...measured.flatMap((shape) => costsOf(shape, rounds[shape]!)),
    ];
  },
};

/** What the rows that are asked for come of: all shapes take half an hour, two of them a few minutes. Pure. */
export function shapesFor(isShown: (row: string) => boolean): Shape[] {
  const needed = new Set(ROWS.filter(({ row }) => isShown(row.name)).flatMap(({ shapes }) => shapes));
  return SHAPE_NAMES.filter((shape) => needed.has(shape));
}

/** @param names in the order in which they are measured. */
async function measure(bench: Bench, names: readonly Shape[]): Promise<Partial<Record<Shape, Round[]>>> {
  const { intents, rounds, warmUpIntents } = bench.sizes;
  const baselines = () => baselinesOf(bench);
  const peers = () => peersOf(bench);
  const all: Record<Shape, () => Promise<Round>> = {
    'empty-workflow': async () => (await baselines()).round('emptyWorkflow', intents),
    on_failure: () => burst(bench, 'on_failure', intents),
    'ceiling-tree': async () => (await baselines()).round('emptyTree', intents),
    child: () => burst(bench, 'child', intents),
    'naive-tree': async () => (await baselines()).round('naiveNotification', intents),
    direct: () => burst(bench, 'direct', DIRECT_FACTOR * intents),
    dbos: async () => (await peers()).round('dbos', PEERS_FACTOR * intents),
    'dbos-tree': async () => (await peers()).round('dbos-tree', intents),
    'no-engine': async () => (await peers()).round('no-engine', DIRECT_FACTOR * intents),
  };
  const wanted = Object.fromEntries(names.map((name) => [name, all[name]]));
  for (const [name, round] of Object.entries(wanted)) {
    bench.report(`Warming up: ${name}`);
    for (let done = 0; done < warmUpIntents;) done += (await round()).count;
  }
  return interleave(rounds, wanted, bench.report);
}

function costsOf(shape: Shape, rounds: Round[]): Finding[] {
  const costs = rounds.flatMap(({ cpuMs }) => (cpuMs ? [cpuMs] : []));
  if (costs.length === 0) return [];
  return (['server', 'worker'] as const).map((who) =>
    medianOf(
      `throughput.${shape}.${who}-cpu`,
      costs.map((cost) => cost[who]),
    ),
  );
}

const ratesByRun = new WeakMap<Bench, Map<Mode, number>>();

function rates(bench: Bench): Map<Mode, number> {
  const found = ratesByRun.get(bench) ?? new Map<Mode, number>();
  ratesByRun.set(bench, found);
  return found;
}

/** Intents a second in a mode: of this run's rounds, or of one that is made for it. */
export async function rateOf(bench: Bench, mode: Mode): Promise<number> {
  const known = rates(bench).get(mode);
  if (known !== undefined) return known;
  await burst(bench, mode, Math.ceil(WARM_UP_SHARE * bench.sizes.intents));
  const { perSecond } = await burst(bench, mode, bench.sizes.intents);
  rates(bench).set(mode, perSecond);
  return perSecond;
}
