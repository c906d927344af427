/**
 * Drills: an alarm's fault is brought about on a running service, the alarm's expression becomes true in Prometheus, an operator
 * does what its section of docs/operate/runbook.md says, and it becomes false.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { reasonOf } from '../../activities/reason.ts';
import { loadConfig } from '../../config/load.ts';
import { findGoProgram } from '../../dev/go-programs.ts';
import { report } from '../../dev/program.ts';
import { LOOPBACK, freePort } from '../../dev/servers/ports.ts';
import { startServer } from '../../dev/servers/server-process.ts';
import { findTemporalProgram } from '../../dev/servers/temporal.ts';
import { cliOfTests } from '../command-line.ts';
import type { Slot } from '../harness.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { ofTests } from '../of-tests.ts';
import { PROGRAM_ENV } from '../program-env.ts';
import { asUser } from '../redis-users.ts';
import type { ServiceProcess } from '../service-process.ts';
import { createFleet } from '../service-process.ts';
import { namespaceOf } from '../slots.ts';
import { ALARMS, inSeconds, sectionOf } from './pages.ts';

/** What a person does beside the commands of a section. */
export interface Deed {
  /** The words of the section that ask for it. */
  words: string;
  act(): Promise<unknown>;
  /** How the command begins that comes after it; default: it comes after all. */
  before?: string;
}

export interface Drill {
  alarm: string;
  /** What breaks. */
  fault: string;
  /** What must be there before it breaks. */
  prepare?(): Promise<unknown>;
  inject(): Promise<unknown>;
  /** Work that goes on coming meanwhile, again and again: a share of what is done needs some. */
  load?(): Promise<unknown>;
  /** What stands in the commands as an example, and what takes its place. */
  examples?(): Record<string, string>;
  /** Of the commands, beside those of the servers. */
  env?(): Record<string, string>;
  deeds?: readonly Deed[];
  /** What a command that begins so must say. */
  says?: Record<string, RegExp>;
  /** The exit code of a command that begins so; default: see `exitCodesOf`. */
  codes?: Record<string, number | readonly number[]>;
  /** What this drill leaves is taken away. */
  cleanUp?(): Promise<unknown>;
}

/** For what is counted within hours: these windows are minutes here. */
const LIMIT_MS = 300_000;
const LOOK_EVERY_MS = 250;
const LOAD_EVERY_MS = 500;
const LOOK_AGAIN_FOR_MS = 30_000;
const EXPORT_INTERVAL_MS = '500';

export interface DrillGround {
  slot: Slot;
  prometheus: Awaited<ReturnType<typeof startPrometheus>>;
  /** Something that Prometheus scrapes as the collector. */
  collector: { stop(): Promise<unknown>; start(): Promise<unknown> };
  /** Starts a process of the service. @param env adds to that of the ground. @param folder of its sources. */
  start(env?: Record<string, string>, folder?: string): Promise<ServiceProcess>;
  /** Kills every process that runs. */
  killAll(): Promise<void>;
  /** Declares the test of an alarm. */
  drill(drill: Drill): void;
}

/**
 * A slot, a Prometheus, and what starts processes that export to it. To be called once in a file, at its top.
 *
 * @param options.env of processes and commands.
 */
export function drillGround({ env }: { env: () => Record<string, string> }): DrillGround {
  let terminal: Awaited<ReturnType<typeof openTerminal>>;
  const fleets: ReturnType<typeof createFleet>[] = [];
  let processes: ServiceProcess[] = [];
  const slot = slotOfTests();
  const cli = cliOfTests(slot);
  const ground = { slot } as DrillGround;
  // Before the slot is released.
  ofTests(
    () => ({}),
    () => ground.killAll(),
  );
  beforeAll(async () => {
    const scraped = await startScraped();
    ground.collector = scraped;
    ground.prometheus = await startPrometheus(scraped.address);
    terminal = await openTerminal();
  }, 900_000);
  afterAll(async () => {
    terminal.close();
    await ground.prometheus.stop();
    await ground.collector.stop();
  });

  ground.start = async (more = {}, folder = undefined) => {
    const fleet = createFleet(slot);
    fleets.push(fleet);
    const started = await fleet.start(
      {
        ...env(),
        OTEL_EXPORTER_OTLP_ENDPOINT: ground.prometheus.otlpUrl,
        OTEL_TRACES_EXPORTER: 'none',
        OTEL_METRIC_EXPORT_INTERVAL: EXPORT_INTERVAL_MS,
        ...more,
      },
      folder,
    );
    processes.push(started);
    return started;
  };
  ground.killAll = async () => {
    processes = [];
    await Promise.all(fleets.splice(0).map((fleet) => fleet.killAll()));
  };
  ground.drill = (drill) => {
    test(
      `I40 ${drill.alarm} rings when ${drill.fault}, and is silent after its section was followed`,
      () => carryOut(drill),
      2 * LIMIT_MS,
    );
  };

  async function carryOut(drill: Drill): Promise<void> {
    const expression = inSeconds(ALARMS.find(({ alert }) => alert === drill.alarm)!.expr);
    const { text } = sectionOf(drill.alarm);
    const until = (is: boolean) =>
      eventually(
        `${drill.alarm} to be ${is}`,
        async () => (await ground.prometheus.isTrue(expression)) === is,
        LIMIT_MS,
        LOOK_EVERY_MS,
      );
    try {
      // Whatever the one before has left.
      if (!processes.some((one) => one.isRunning())) await ground.start();
      await drill.prepare?.();
      await until(false);
      const faultAt = performance.now();
      await drill.inject();
      await under(drill.load, () => until(true));
      const trueAt = performance.now();
      report(`${drill.alarm} is true ${secondsOf(trueAt - faultAt)} s after ${drill.fault}`);
      await follow(drill);
      const doneAt = performance.now();
      await until(false);
      const falseAt = performance.now();
      report(`${drill.alarm} is false ${secondsOf(falseAt - doneAt)} s after its section was followed`);
      for (const { words } of drill.deeds ?? []) expect(text).toContain(words);
    } catch (error) {
      // What cleans up may fail for the same reason, and hide it.
      report(`${drill.alarm}: ${reasonOf(error)}`);
      throw error;
    } finally {
      await drill.cleanUp?.();
    }
  }

  /** Runs the commands of a section in their order, and does in between what it says. */
  async function follow({ alarm, ...drill }: Drill): Promise<void> {
    const left = [...(drill.deeds ?? [])];
    const examples = drill.examples?.() ?? {};
    for (const line of sectionOf(alarm).commands) {
      for (const deed of left.filter(({ before }) => before !== undefined && line.startsWith(before))) {
        await deed.act();
        left.splice(left.indexOf(deed), 1);
      }
      const command = Object.entries(examples).reduce((text, [from, to]) => text.replaceAll(from, to), line);
      const run = () =>
        terminal.run(command, {
          ...cli.env,
          TEMPORAL_NAMESPACE: namespaceOf(slot.slot),
          ...env(),
          ...asUser('operator'),
          ...drill.env?.(),
        });
      const said = Object.entries(drill.says ?? {}).find(([beginning]) => line.startsWith(beginning))?.[1];
      let result = await run();
      // A look may be early: statuses and lists are some seconds behind. Then the operator looks again.
      for (
        const until = Date.now() + LOOK_AGAIN_FOR_MS;
        said && !said.test(result.output) && Date.now() < until;
      )
        result = await run();
      if (!exitCodesOf(line, drill.codes).includes(result.code))
        throw new Error(`${command} ended with ${result.code}:\n${result.output}`);
      if (said) expect(result.output).toMatch(said);
    }
    for (const deed of left) {
      expect(deed.before).toBeUndefined();
      await deed.act();
    }
  }

  return ground;
}

/**
 * A command that looks finds nothing where a fault has left nothing to see, and `doctor` fails while something is wrong; one that
 * does something succeeds.
 */
function exitCodesOf(line: string, codes: Drill['codes'] = {}): readonly (number | null)[] {
  const known = Object.entries(codes).find(([beginning]) => line.startsWith(beginning));
  if (known) return [known[1]].flat();
  if (line.startsWith('galaxy-notify doctor')) return [0, 1];
  return / list( |$)/.test(line) ? [0, 3] : [0];
}

/** Stands for the collector's own metrics, of which Prometheus sees only whether they can be had. */
async function startScraped() {
  const answer = () =>
    createServer((_, response) => response.setHeader('content-type', 'text/plain').end(''));
  const port = await freePort();
  let server = answer();
  const start = () => once(server.listen(port, LOOPBACK), 'listening');
  await start();
  return {
    address: `${LOOPBACK}:${port}`,
    async stop() {
      server.closeAllConnections();
      server.close();
    },
    start() {
      server = answer();
      return start();
    },
  };
}

/** Does something again and again while something else is under way. */
async function under<T>(load: Drill['load'], call: () => Promise<T>): Promise<T> {
  let isOver = false;
  const loading = (async () => {
    while (load && !isOver) {
      await load();
      await sleep(LOAD_EVERY_MS);
    }
  })();
  try {
    return await call();
  } finally {
    isOver = true;
    await loading;
  }
}

/** To a tenth. */
const secondsOf = (ms: number): string => (ms / 1_000).toFixed(1);

/** Wide enough that no table is cut. */
const COLUMNS = 250;
/** One that takes longer hangs, ms. */
const COMMAND_LIMIT_MS = 240_000;

/** Has the two programs that the runbook names. */
async function openTerminal() {
  const { command, isCli } = await findTemporalProgram(loadConfig().values.TEMPORAL_CLI_PATH, report);
  const temporal = isCli ? command : await findGoProgram('temporal', report);
  const dir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-terminal-'));
  const addProgram = (name: string, command: string) => {
    const file = path.join(dir, name);
    writeFileSync(file, `#!/bin/sh\nexec ${command} "$@"\n`);
    chmodSync(file, 0o755);
  };
  addProgram('galaxy-notify', `'${process.execPath}' '${path.resolve('cli/main.ts')}'`);
  addProgram('temporal', `'${temporal}'`);

  return {
    run: (command: string, env: Readonly<Record<string, string>>) =>
      new Promise<{ code: number | null; output: string }>((resolve) => {
        // A terminal, as operators have it.
        const child = spawn('script', ['-qec', `stty cols ${COLUMNS}; ${command}`, '/dev/null'], {
          timeout: COMMAND_LIMIT_MS,
          env: {
            ...PROGRAM_ENV,
            ...env,
            PATH: `${dir}:${PROGRAM_ENV.PATH}`,
            SHELL: '/bin/bash',
            TERM: 'dumb',
            HOME: dir,
          },
        });
        let output = '';
        child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
        child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
        child.once('close', (code) => resolve({ code, output }));
      }),
    close: () => rmSync(dir, { recursive: true, force: true }),
  };
}

/** How long a value counts that is not exported any more: what `metric_expiration` of a collector is, docs/operate/logs-and-traces.md. */
const FORGETS_AFTER = '5s';

/** @param scraped what is scraped as `otel-collector`, `<host>:<port>`. */
async function startPrometheus(scraped: string) {
  const command = await findGoProgram('prometheus', report);
  const dir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-prometheus-'));
  const port = await freePort();
  const config = path.join(dir, 'prometheus.json');
  mkdirSync(path.join(dir, 'data'));
  // JSON is YAML.
  writeFileSync(
    config,
    JSON.stringify({
      scrape_configs: [
        {
          job_name: 'otel-collector',
          scrape_interval: '1s',
          scrape_timeout: '1s',
          static_configs: [{ targets: [scraped] }],
        },
      ],
    }),
  );
  const url = `http://${LOOPBACK}:${port}`;
  const server = await startServer({
    name: 'prometheus',
    title: 'Prometheus',
    dataDir: dir,
    command,
    args: [
      `--config.file=${config}`,
      `--storage.tsdb.path=${path.join(dir, 'data')}`,
      `--web.listen-address=${LOOPBACK}:${port}`,
      '--web.enable-otlp-receiver',
      `--query.lookback-delta=${FORGETS_AFTER}`,
      '--log.level=warn',
    ],
    ports: [{ port, name: 'Prometheus' }],
    ready: async () => {
      const response = await fetch(`${url}/-/ready`);
      if (!response.ok) throw new Error(`it answers ${response.status}`);
    },
    report,
  });
  return {
    /** Where services export metrics to. */
    otlpUrl: `${url}/api/v1/otlp`,
    /** Whether an expression has a value now: then the alarm that is made of it would ring. */
    async isTrue(expression: string): Promise<boolean> {
      const response = await fetch(`${url}/api/v1/query`, {
        method: 'POST',
        body: new URLSearchParams({ query: expression }),
      });
      const answer = (await response.json()) as { error?: string; data?: { result: unknown[] } };
      if (!answer.data) throw new Error(`${expression}: ${answer.error}`);
      return answer.data.result.length > 0;
    },
    async stop() {
      await server.stop();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}
