/** `bridge`: the reader of the intent stream. */
import type { Command } from 'commander';
import type { BridgeStatus } from '../../client/intent/bridge.ts';
import { EXIT } from '../command.ts';
import { define } from '../definition.ts';
import type { Requested } from '../options.ts';
import { reasonOption, requestedByOption } from '../options.ts';
import { printHeading, printItems, printView, report } from '../output.ts';

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

function printStatus({ progress, pause, stream, workflowId: _, isPaused: _paused, ...status }: BridgeStatus) {
  printHeading(`Reader of ${stream}`);
  const { findings = [], seen: _seen, stream: _stream, ...read } = progress ?? {};
  printView({ ...status, pausedBy: pause?.by, since: pause?.since, reason: pause?.reason, ...read });
  if (findings.length === 0) return;
  printHeading('Findings');
  printItems(findings, {
    ...{ KIND: 'kind', MESSAGE: 'message' },
    SINCE: ({ sinceMs }) => new Date(sinceMs),
  });
}
