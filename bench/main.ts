/** `npm run bench`: the targets of bench/README.md, measured on servers that it starts. */
import { existsSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { onInterrupt } from '../api/interrupts.ts';
import { report, runProgram } from '../dev/program.ts';
import { actions } from './actions.ts';
import { accountCallback } from './account-callback.ts';
import { backlogs } from './backlog.ts';
import type { Bench, PartName } from './environment.ts';
import { WAYS, openBench, sizesOf } from './environment.ts';
import { fanOut } from './fan-out.ts';
import { footprint } from './footprint.ts';
import { intake } from './intake.ts';
import { largeAudiences } from './large-audience.ts';
import { latency } from './latency.ts';
import type { Measurement } from './measurement.ts';
import { mobilePush } from './mobile-push.ts';
import { outcomes } from './outcomes.ts';
import type { Selection } from './options.ts';
import { HELP, parseOptions, select } from './options.ts';
import { describeProfiles } from './profile.ts';
import type { Row } from './report.ts';
import { describeMachine, rowsOf, tableOfRows, tableOfTargets } from './report.ts';
import { replication } from './replication.ts';
import { scaleDue } from './scale-due.ts';
import { scaleHostile } from './scale-hostile.ts';
import { scaleIntent } from './scale-intent.ts';
import { scaleAccountCallback } from './scale-account-callback.ts';
import { scaleMobilePush } from './scale-mobile-push.ts';
import { scaleRecovery } from './scale-recovery.ts';
import { scaleRetention } from './scale-retention.ts';
import { scaleRouters } from './scale-routers.ts';
import { scaleSubscription } from './scale-subscription.ts';
import { scaleWhy } from './scale-why.ts';
import { throughput } from './throughput.ts';
import { urgent } from './urgent.ts';

/** In the order in which they are made. A further feature is a further line. */
const MEASUREMENTS: readonly Measurement[] = [
  footprint,
  actions,
  intake,
  throughput,
  latency,
  fanOut,
  replication,
  outcomes,
  ...backlogs,
  ...urgent,
  ...largeAudiences,
  scaleIntent,
  scaleHostile,
  scaleDue,
  scaleRecovery,
  scaleWhy,
  scaleRetention,
  mobilePush,
  scaleMobilePush,
  accountCallback,
  scaleAccountCallback,
  scaleSubscription,
  scaleRouters,
];

async function main(): Promise<void> {
  const options = parseOptions(process.argv.slice(2));
  if (options.help) return void process.stdout.write(HELP);
  if (options.list) return void process.stdout.write(`${tableOfTargets(MEASUREMENTS)}\n`);
  const { profileDir, jsonFile } = options;
  const isNarrow = profileDir !== undefined || options.cluster;
  const only = isNarrow && options.only.length === 0 ? [throughput.name] : options.only;
  const selection = select(MEASUREMENTS, { ...options, only });
  const machine = describeMachine();
  const date = new Date().toISOString();
  const bench = await openBench({
    sizes: sizesOf(options),
    isCluster: options.cluster,
    report,
    nodeOptionsOf: (part) => (profileDir === undefined ? [] : profilerOptions(profileDir, part)),
  });
  onInterrupt(() => stopEarly(bench));
  try {
    const measured = await measure(bench, selection);
    const rows = options.cluster ? measured.map(ofCluster) : measured;
    process.stdout.write(`\n${tableOfRows(rows)}\n`);
    if (jsonFile !== undefined) {
      const result = { date, machine, versions: await bench.versions(), sizes: bench.sizes, rows };
      writeFileSync(jsonFile, `${JSON.stringify(result, null, 2)}\n`);
    }
  } catch (error) {
    // After Ctrl-C everything fails that still runs.
    if (!isStopping) throw error;
  } finally {
    // The profiler writes when its process ends.
    await bench.close();
  }
  if (profileDir !== undefined && !isStopping) showProfiles(profileDir, bench);
}

async function measure(bench: Bench, { measurements, isShown }: Selection): Promise<Row[]> {
  const rows: Row[] = [];
  for (const measurement of measurements) {
    report(`== ${measurement.name}: ${measurement.meaning}`);
    rows.push(...rowsOf(measurement, await measurement.run(bench, isShown)));
  }
  return rows.filter(({ name }) => isShown(name));
}

/** Targets are those of the embedded server. */
const ofCluster = (row: Row): Row => ({ ...row, name: `cluster.${row.name}`, target: null, ok: null });

const profilesOf = (dir: string, part: PartName): string => path.resolve(dir, part);

const profilerOptions = (dir: string, part: PartName): string[] => [
  '--cpu-prof',
  `--cpu-prof-dir=${profilesOf(dir, part)}`,
];

function showProfiles(dir: string, { readyAtUs }: Bench): void {
  for (const way of WAYS) {
    const folder = profilesOf(dir, way);
    if (existsSync(folder))
      process.stdout.write(`\nService, ${way}\n\n${describeProfiles(folder, readyAtUs)}\n`);
  }
}

let isStopping = false;

/** A second signal does not wait: ending through `exit` takes the servers along. */
function stopEarly(bench: Bench): void {
  isStopping = true;
  report('Stopping (again to stop immediately)');
  void bench.close().finally(() => process.exit(130));
}

await runProgram(async () => {
  await main();
  return true;
});
