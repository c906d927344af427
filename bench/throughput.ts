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
  slices: 'intents in slices of 100, all real work',
  dbos: 'the real work on DBOS, one workflow of two steps',
  'dbos-tree': 'the real work on DBOS, a child for each route',
  'no-engine': 'the real work without an engine, of which nothing survives a crash',
} as const;
type Shape = keyof typeof SHAPES;
const SHAPE_NAMES = Object.keys(SHAPES) as Shape[];

/** Rounds of what is quicker are as much longer: otherwise they would end within a moment. */
const SLICES_FACTOR = 20;
const PEERS_FACTOR = 4;
/** Of a round, for whoever needs no more than a rate: compilers, caches and connections. */
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
  { of: 'slices', to: 'on_failure', atLeast: 8, meaning: 'what one workflow for many intents gains' },
  { of: 'slices', to: 'dbos', atLeast: 5, meaning: 'against one workflow on DBOS' },
  { of: 'slices', to: 'no-engine', atLeast: 0.5, meaning: 'how much of the bare work is left' },
  { of: 'on_failure', to: 'dbos', meaning: 'against one workflow on DBOS' },
  { of: 'child', to: 'dbos-tree', meaning: 'against a tree on DBOS' },
];
const ratioRow = ({ of, to }: { of: Shape; to: Shape }) => `throughput.${of}/${to}`;

export const throughput: Measurement = {
  name: 'throughput',
  meaning: 'intents a second, published together, and the CPU time of one',
  isQuick: true,
  rows: [
    ...SHAPE_NAMES.map((shape) => ({
      name: `throughput.${shape}`,
      unit: '/s',
      meaning: SHAPES[shape],
    })),
    ...RATIOS.map(({ atLeast, meaning, ...pair }) => ({
      name: ratioRow(pair),
      unit: '',
      ...(atLeast === undefined ? {} : { target: { atLeast } }),
      meaning,
    })),
    ...SHAPE_NAMES.flatMap((shape): RowSpec[] => [
      {
        name: `throughput.${shape}.server-cpu`,
        unit: 'ms',
        meaning: 'CPU of Temporal, PostgreSQL and Redis for one',
      },
      { name: `throughput.${shape}.worker-cpu`, unit: 'ms', meaning: 'CPU of the worker process for one' },
    ]),
  ],

  async run(bench) {
    const rounds = await measure(bench);
    for (const mode of ['child', 'on_failure'] as const) {
      rates(bench).set(mode, median(rounds[mode].map(({ perSecond }) => perSecond)));
    }
    const rateOf = (shape: Shape) => rounds[shape].map(({ perSecond }) => perSecond);
    const ceiling = rateOf('ceiling-tree');
    return [
      ...SHAPE_NAMES.map((shape): Finding => ({
        ...medianOf(`throughput.${shape}`, rateOf(shape)),
        ofCeiling: median(ratios(rateOf(shape), ceiling)),
        details: rounds[shape],
      })),
      ...RATIOS.map((pair) => medianOf(ratioRow(pair), ratios(rateOf(pair.of), rateOf(pair.to)))),
      ...SHAPE_NAMES.flatMap((shape) => costsOf(shape, rounds[shape])),
    ];
  },
};

async function measure(bench: Bench): Promise<Record<Shape, Round[]>> {
  const { intents, rounds, warmUpIntents } = bench.sizes;
  const [baselines, peers] = await Promise.all([baselinesOf(bench), peersOf(bench)]);
  const shapes = (count: number): Record<Shape, () => Promise<Round>> => ({
    'empty-workflow': () => baselines.round('emptyWorkflow', count),
    on_failure: () => burst(bench, 'on_failure', count),
    'ceiling-tree': () => baselines.round('emptyTree', count),
    child: () => burst(bench, 'child', count),
    'naive-tree': () => baselines.round('naiveNotification', count),
    slices: () => burst(bench, 'slices', SLICES_FACTOR * count),
    dbos: () => peers.round('dbos', PEERS_FACTOR * count),
    'dbos-tree': () => peers.round('dbos-tree', count),
    'no-engine': () => peers.round('no-engine', SLICES_FACTOR * count),
  });
  for (const [name, round] of Object.entries(shapes(intents))) {
    bench.report(`Warming up: ${name}`);
    for (let done = 0; done < warmUpIntents;) done += (await round()).count;
  }
  return interleave(rounds, shapes(intents), bench.report);
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
