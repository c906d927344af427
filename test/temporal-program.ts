/**
 * The `temporal` program as operators have it, with the commands that pages name. Where the machine has no Temporal CLI,
 * since the embedded server is our own, the SDK sends the same request.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { loadConfig } from '../config/load.ts';
import { findTemporalProgram } from '../dev/servers/temporal.ts';
import type { Slot } from './harness.ts';

interface Start {
  workflowId: string;
  type: string;
  taskQueue: string;
  input: unknown;
}

interface SignalWithStart extends Start {
  idReusePolicy: 'AllowDuplicateFailedOnly';
  signal: string;
  /** In JSON. */
  signalInput?: string | undefined;
}

export function temporalProgram({ client, endpoints }: Slot) {
  const run = async (command: string, ...args: string[]): Promise<void> => {
    const where = ['--address', endpoints.temporalAddress!, '--namespace', client.options.namespace];
    await promisify(execFile)(command, ['workflow', ...args, ...where]);
  };
  const argsOf = ({ workflowId, type, taskQueue, input }: Start) => [
    ...['--workflow-id', workflowId, '--type', type, '--task-queue', taskQueue],
    ...['--input', JSON.stringify(input)],
  ];
  return {
    /** `temporal workflow start` */
    async start(start: Start): Promise<void> {
      const { command, isCli } = await program();
      const { workflowId, type, taskQueue, input } = start;
      if (isCli) await run(command, 'start', ...argsOf(start));
      else await client.workflow.start(type, { workflowId, taskQueue, args: [input] });
    },

    /** `temporal workflow signal-with-start` */
    async signalWithStart(start: SignalWithStart): Promise<void> {
      const { command, isCli } = await program();
      const { workflowId, type, taskQueue, input, idReusePolicy, signal, signalInput } = start;
      if (isCli) {
        const signalArgs = signalInput === undefined ? [] : ['--signal-input', signalInput];
        const flags = ['--signal-name', signal, '--id-reuse-policy', idReusePolicy, ...signalArgs];
        await run(command, 'signal-with-start', ...argsOf(start), ...flags);
      } else {
        await client.workflow.signalWithStart(type, {
          ...{ workflowId, taskQueue, args: [input], signal },
          signalArgs: (signalInput === undefined ? [] : [JSON.parse(signalInput)]) as unknown[],
          workflowIdReusePolicy: 'ALLOW_DUPLICATE_FAILED_ONLY',
        });
      }
    },
  };
}

const program = () => findTemporalProgram(loadConfig().values.TEMPORAL_CLI_PATH, () => undefined);
