/** Where a profiled process spent its time: what Node's CPU profiler wrote, added up by who the code belongs to. */
import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { tableOf } from '../dev/table.ts';

/** How many functions are named. */
const TOP_FUNCTIONS = 25;

/** `CPU.<date>.<time>.<process>.<thread>.<number>.cpuprofile` */
const PROCESS_ID = /^CPU\.\d+\.\d+\.(\d+)\./;

/** The part of V8's format that is used here. */
interface CpuProfile {
  nodes: { id: number; callFrame: CallFrame }[];
  /** By the monotonic clock, µs. */
  startTime: number;
  /** Node ids, and the time since the sample before, µs. */
  samples: number[];
  timeDeltas: number[];
}

interface CallFrame {
  functionName: string;
  url: string;
  lineNumber: number;
}

/** The first that fits decides. */
const GROUPS: readonly [group: string, fits: (frame: CallFrame) => boolean][] = [
  ['idle', ({ functionName }) => functionName === '(idle)'],
  ['garbage collection', ({ functionName }) => functionName === '(garbage collector)'],
  // The bundle, the VM around it, and the calls into that.
  [
    'workflow sandbox',
    ({ functionName, url }) =>
      functionName === 'runInContext' ||
      /galaxy-notify\/workflows-|@temporalio\/(workflow|worker\/lib\/workflow)|^evalmachine/.test(url),
  ],
  ['native code', ({ functionName, url }) => functionName === '(program)' || url === ''],
  ['protobuf', inUrl(/@temporalio\/proto|protobufjs|node_modules\/long\//)],
  ['gRPC', inUrl(/@grpc/)],
  ['OpenTelemetry', inUrl(/@opentelemetry/)],
  ['Temporal SDK', inUrl(/@temporalio\//)],
  ['pg', inUrl(/node_modules\/pg/)],
  ['ioredis', inUrl(/node_modules\/(@?ioredis|redis-)/)],
  ['pino', inUrl(/node_modules\/(@?pino|sonic-boom|safe-stable-stringify|fast-redact)/)],
  ['other packages', inUrl(/node_modules\//)],
  ['Node', inUrl(/^(node|wasm):/)],
  ['our code', () => true],
];

function inUrl(pattern: RegExp): (frame: CallFrame) => boolean {
  return ({ url }) => pattern.test(url);
}

/** Self time of a function, ms. */
interface SelfTime extends CallFrame {
  group: string;
  ms: number;
}

/**
 * Self times by function, longest first.
 *
 * @param profiles one for each thread. What was sampled before `sinceUs`, by the monotonic clock, is left out.
 */
export function selfTimes(profiles: readonly { profile: CpuProfile; sinceUs: number }[]): SelfTime[] {
  const found = new Map<string, SelfTime>();
  for (const { profile, sinceUs } of profiles) {
    const { nodes, samples, timeDeltas } = profile;
    let at = profile.startTime;
    const frames = new Map(nodes.map(({ id, callFrame }) => [id, callFrame]));
    samples.forEach((id, index) => {
      at += timeDeltas[index] ?? 0;
      if (at < sinceUs) return;
      const frame = frames.get(id)!;
      const key = `${frame.functionName} ${frame.url}:${frame.lineNumber}`;
      const entry = found.get(key) ?? { ...frame, group: groupOf(frame), ms: 0 };
      entry.ms += (timeDeltas[index] ?? 0) / 1_000;
      found.set(key, entry);
    });
  }
  return [...found.values()].sort((a, b) => b.ms - a.ms);
}

const groupOf = (frame: CallFrame): string => GROUPS.find(([, fits]) => fits(frame))![0];

/**
 * Two tables, groups and functions, of the profiles in a folder. Shares are of the time that was not idle.
 *
 * @param readyAtUs when each process was ready, by its id: starting is not what is asked about.
 */
export function describeProfiles(folder: string, readyAtUs: ReadonlyMap<number, number>): string {
  const files = readdirSync(folder).filter((file) => file.endsWith('.cpuprofile'));
  const times = selfTimes(
    files.flatMap((file) => {
      // A file of an unknown process comes from an earlier run.
      const sinceUs = readyAtUs.get(Number(PROCESS_ID.exec(file)?.[1]));
      if (sinceUs === undefined) return [];
      return [{ profile: JSON.parse(readFileSync(path.join(folder, file), 'utf8')) as CpuProfile, sinceUs }];
    }),
  ).filter(({ group }) => group !== 'idle');
  const total = sumOf(times);
  const cells = (ms: number) => [`${Math.round(ms)} ms`, `${((100 * ms) / total).toFixed(1)} %`];
  const groups = GROUPS.map(([name]) => ({ name, ms: sumOf(times.filter(({ group }) => group === name)) }))
    .filter(({ ms }) => ms > 0)
    .sort((a, b) => b.ms - a.ms);
  return [
    tableOf(
      ['GROUP', 'SELF', 'SHARE'],
      groups.map(({ name, ms }) => [name, ...cells(ms)]),
    ),
    '',
    tableOf(
      ['FUNCTION', 'SELF', 'SHARE', 'GROUP', 'WHERE'],
      times
        .slice(0, TOP_FUNCTIONS)
        .map(({ functionName, ms, group, url, lineNumber }) => [
          functionName || '(anonymous)',
          ...cells(ms),
          group,
          url === ''
            ? ''
            : `${url.replace(/^.*\/node_modules\//, '').replace(/^file:\/\//, '')}:${lineNumber + 1}`,
        ]),
    ),
  ].join('\n');
}

const sumOf = (times: readonly { ms: number }[]): number => times.reduce((sum, { ms }) => sum + ms, 0);
