import { openBench, sizesOf } from './environment.ts';
import { burst } from './intent.ts';
const prof = process.argv[2];
const bench = await openBench({ sizes: sizesOf({ quick: true, rounds: 1 }), report: (l) => console.error(l), nodeOptionsOf: () => prof ? ['--cpu-prof', `--cpu-prof-dir=${prof}`] : [] });
const timer = setTimeout(() => { console.error('stuck', bench.dataDir); }, 40_000);
try {
  for (const n of (process.argv[3] ?? '600,3000,6000').split(',').map(Number)) {
    const r = await burst(bench, 'slices', n);
    console.log(n, r.perSecond.toFixed(0) + '/s', JSON.stringify(r.cpuMs));
  }
  await bench.stopService('slices');
} finally { clearTimeout(timer); await bench.close(); }
