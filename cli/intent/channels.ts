/** `channels`: pausing and resuming push or e-mail. */
import type { Command } from 'commander';
import { Argument } from 'commander';
import type { ChannelName, ChannelState } from '../../workflows/intent/channel-contract.ts';
import {
  CHANNEL_NAMES,
  DEFAULT_DRAIN_RATE,
  MAX_DRAIN_RATE,
} from '../../workflows/intent/channel-contract.ts';
import { action, helpWith } from '../command.ts';
import { parseCount, reasonOption, requestedByOption } from '../options.ts';
import { countOf, printJson, printLine, printTable, report } from '../output.ts';
import { withSession } from '../session.ts';

const channelArgument = () => new Argument('<channel>', 'which channel').choices(CHANNEL_NAMES);

export function addChannelCommands(program: Command): void {
  const channels = program.command('channels').description('Push and e-mail: whether they publish');

  channels
    .command('list')
    .description('List the channels with their state and the routes that wait for them.')
    .addHelpText('after', helpWith('galaxy-notify channels list'))
    .action(
      action(({ json }) =>
        withSession(['postgres'], async ({ operator }) => {
          const views = await operator.channels.list();
          if (json) return printJson({ items: views });
          printTable(
            ['CHANNEL', 'STATUS', 'SINCE', 'BY', 'OPEN ROUTES', 'REASON'],
            views.map((view) => [
              view.channel,
              view.status,
              view.since,
              view.changedBy,
              view.openRoutes,
              view.reason,
            ]),
            { flexible: 5, links: views.map(({ link }) => link) },
          );
          for (const { channel, status, drain } of views) {
            if (status !== 'draining' || !drain) continue;
            report(
              `${channel}: ${drain.released} waiting routes released so far, ${drain.ratePerSecond} per second`,
            );
          }
          const silent = views.filter(({ isWorkflowSilent }) => isWorkflowSilent);
          if (silent.length > 0) {
            const names = silent.map(({ channel }) => channel).join(', ');
            report(`no answer from the workflow of ${names}: shown as the database has it`);
          }
        }),
      ),
    );

  channels
    .command('pause')
    .description(
      'Pause a channel until it is resumed, also over restarts. Its routes wait and spend no budget.',
    )
    .addArgument(channelArgument())
    .addOption(reasonOption())
    .addOption(requestedByOption())
    .addHelpText(
      'after',
      helpWith("galaxy-notify channels pause email --reason 'Mail Service is being moved'"),
    )
    .action(
      action<{ reason?: string; requestedBy: string }, [ChannelName]>(
        ({ json, reason, requestedBy }, channel) =>
          withSession(['postgres', 'temporal'], async ({ operator }) => {
            const state = await operator.channels.pause(channel, {
              requestedBy,
              ...(reason === undefined ? {} : { reason }),
            });
            printState(state, json);
            report(`new publications wait until: galaxy-notify channels resume ${channel}`);
          }),
      ),
    );

  channels
    .command('resume')
    .description('Resume a channel. Waiting routes are released at a set rate.')
    .addArgument(channelArgument())
    .option(
      '--rate <n>',
      `waiting routes released per second, ${DEFAULT_DRAIN_RATE} unless set`,
      parseCount(1, MAX_DRAIN_RATE),
    )
    .addOption(requestedByOption())
    .addHelpText('after', helpWith('galaxy-notify channels resume email --rate 20'))
    .action(
      action<{ rate?: number; requestedBy: string }, [ChannelName]>(({ json, rate, requestedBy }, channel) =>
        withSession(['postgres', 'temporal'], async ({ operator }) => {
          const state = await operator.channels.resume(channel, {
            requestedBy,
            ...(rate === undefined ? {} : { ratePerSecond: rate }),
          });
          printState(state, json);
          const view = (await operator.channels.list()).find((one) => one.channel === channel);
          if (view) report(`${countOf(view.openRoutes, 'route')} open on ${channel}`);
        }),
      ),
    );
}

function printState(state: ChannelState, json: boolean | undefined): void {
  if (json) return printJson(state);
  const rate = state.drain && state.status === 'draining' ? `, ${state.drain.ratePerSecond} per second` : '';
  printLine(`${state.channel} is ${state.status}${rate}`);
}
