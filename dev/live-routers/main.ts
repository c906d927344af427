/** `npm run test:routers`: the life of a subscription on running routers, official ones for instance. */
import { explain } from '../../api/errors.ts';
import { onInterrupt } from '../../api/interrupts.ts';
import { runLive } from './live-run.ts';
import { HELP, WrongUsage, parseWishes } from './options.ts';
import { keptCertificate, startPushProvider } from './push-provider.ts';
import type { Step } from './steps.ts';

const WRONG_USAGE = 2;
const INTERRUPTED = 130;

/** @returns the exit code. */
async function main(): Promise<number> {
  const wishes = parseWishes(process.argv.slice(2));
  if (wishes.help) {
    process.stdout.write(HELP);
    return 0;
  }
  if (wishes.prepare) {
    const { certFile } = await keptCertificate(wishes.pushFolder);
    process.stdout.write(`${certFile} is the certificate of the push provider: have the router trust it.\n`);
    return 0;
  }
  const { smp, ntf, pushHost, pushPort, limitMs } = wishes.options();
  const certificate = await keptCertificate(wishes.pushFolder);
  const provider = await startPushProvider({ host: pushHost, port: pushPort }, certificate);
  const steps: Step[] = [];
  const tell = (step: Step): void => {
    steps.push(step);
    if (!wishes.json) process.stdout.write(lineOf(step));
  };
  const stopping = new AbortController();
  const onCtrlC = () => {
    process.stderr.write('Ctrl-C: deleting what was made\n');
    stopping.abort();
  };
  onInterrupt(onCtrlC, undefined, ['SIGINT']);
  try {
    const { signal } = stopping;
    const isGood = await runLive({ smp, ntf, provider, limitMs, tell, signal });
    if (wishes.json) process.stdout.write(`${JSON.stringify({ ok: isGood, steps }, null, 2)}\n`);
    else process.stdout.write(isGood ? 'all steps went well\n' : `failed: ${steps.at(-1)!.step}\n`);
    if (isGood) return 0;
    return signal.aborted ? INTERRUPTED : 1;
  } finally {
    await provider.stop();
  }
}

const MS_WIDTH = 7;

function lineOf({ step, ms, seen, error }: Step): string {
  const facts = Object.entries(seen).map(([name, value]) => `${name} ${value}`);
  return [
    `${String(ms).padStart(MS_WIDTH)} ms  ${error === undefined ? 'ok    ' : 'FAILED'}  ${step}`,
    ...[...(error === undefined ? [] : [error]), ...facts].map(
      (line) => `${' '.repeat(MS_WIDTH + 13)}${line}`,
    ),
    '',
  ].join('\n');
}

try {
  process.exitCode = await main();
} catch (error) {
  process.stderr.write(`${explain(error)}\n`);
  process.exitCode = error instanceof WrongUsage ? WRONG_USAGE : 1;
}
