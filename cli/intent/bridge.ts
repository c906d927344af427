/** `bridge`: the reader of the intent stream. */
import type { Command } from 'commander';
import type { BridgeStatus } from '../../client/intent/bridge.ts';
import { EXIT } from '../command.ts';
import { define } from '../definition.ts';
import type { Requested } from '../options.ts';
import { reasonOption, requestedByOption } from '../options.ts';
import { durationOf, printFields, printHeading, report } from '../output.ts';

export function addTo(bridge: Command): void {
  define(bridge, {
    name: 'status',
    description: 'Show the reader: whether it reads, where it is, how far behind, and what is wrong.',
    examples: ['bridge status', 'bridge status --json'],
    needs: ['temporal'],
    run: ({ operator }) => operator.bridge.status(),
    print: printStatus,
    end({ state }) {
      if (state !== 'not running') return;
      report('the service starts the reader when it starts');
      return EXIT.nothing;
    },
  });

  define(bridge, {
    name: 'pause',
    description:
      'Stop intake. New entries wait in Redis; accepted notifications are still delivered. The pause outlasts restarts of the service.',
    options: [reasonOption().makeOptionMandatory(), requestedByOption()],
    examples: ["bridge pause --reason 'database maintenance'"],
    needs: ['temporal'],
    run: ({ operator }, request: Required<Requested>) => operator.bridge.pause(request),
    print: printStatus,
    end: () => report('paused, also over restarts of the service, until: galaxy-notify bridge resume'),
  });

  define(bridge, {
    name: 'resume',
    description: 'Start intake again, from the offset: nothing is lost.',
    options: [requestedByOption()],
    examples: ['bridge resume'],
    needs: ['temporal'],
    run: ({ operator }, request: Requested) => operator.bridge.resume(request),
    print: printStatus,
  });
}

function printStatus({ progress, pause, ...status }: BridgeStatus): void {
  printHeading(`Reader of ${status.stream}`);
  printFields([
    ['state', status.state],
    ['paused by', pause?.by],
    ['since', pause?.since],
    ['reason', pause?.reason],
    ['worker', status.worker],
    [
      'heartbeat',
      status.heartbeatAt &&
        `${status.heartbeatAt.toISOString()}, ${durationOf(Math.max(0, Date.now() - status.heartbeatAt.getTime()))} ago`,
    ],
    ['offset', progress?.offset],
    [
      'lag',
      progress && (progress.lagMs < 0 ? 'unknown: Redis did not say' : `${durationOf(progress.lagMs)}`),
    ],
    ['rate', progress && `${progress.rate} entries/s`],
    [
      'since take-over',
      progress &&
        `${progress.taken} intents read, ${progress.dispatched} dispatched, ${progress.malformed} malformed`,
    ],
    ['last failure', status.lastFailure],
    ['next attempt', status.nextAttemptAt],
    ['link', status.link],
  ]);
  const findings = progress?.findings ?? [];
  if (findings.length === 0) return;
  printHeading('Findings');
  printFields(
    findings.map(({ kind, message, sinceMs }) => [
      kind,
      `${message} (since ${new Date(sinceMs).toISOString()})`,
    ]),
  );
}
