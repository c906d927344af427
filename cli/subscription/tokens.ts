/** `tokens`: the device that an agent's notifications go to. */
import type { Command } from 'commander';
import { deviceTokenSchema } from '../../api/subscription/router-address.ts';
import type { ExitCode, GlobalOptions } from '../command.ts';
import { EXIT, UsageError, action, readSecret } from '../command.ts';
import { form, option } from '../definition.ts';
import type { Requested } from '../options.ts';
import { requestedByOption, yesOption } from '../options.ts';
import { printJson, printLine, report } from '../output.ts';
import type { Session } from '../session.ts';
import { withSession } from '../session.ts';
import type { TokenDevice } from '../../client/subscription/tokens.ts';

const DEVICE_HELP = 'AD, AP, AT or AN for the push provider, a colon, and the device token in hex';
const ARGUMENT_HELP = `-: standard input has ${DEVICE_HELP}`;

export function addTo(tokens: Command): void {
  form(tokens, {
    name: 'register',
    description:
      'Register a device with a notification router, or take the token over to another device. The router then pushes a code to the device, with which tokens verify ends the registration.',
    args: [['<device>', ARGUMENT_HELP]],
    options: [
      option('--mode <mode>', 'INSTANT: a push for each message; PERIODIC: the device looks now and then')
        .choices(['INSTANT', 'PERIODIC'])
        .default('INSTANT'),
      requestedByOption(),
    ],
    examples: ['tokens register --mode INSTANT - <device.txt'],
  }).action(
    withDevice<{ mode: 'INSTANT' | 'PERIODIC' } & Requested>(async (tokens, device, options) => {
      const { mode, json, requestedBy } = options;
      const status = await tokens.register(device!, mode, { requestedBy });
      print(status, json);
      if (status === 'REGISTERED') report('the code is pushed to the device; then: tokens verify');
    }),
  );

  form(tokens, {
    name: 'verify',
    description: 'End a registration with what was pushed to the device.',
    args: [['<device>', ARGUMENT_HELP]],
    options: [
      option('--nonce <base64url>', 'of the push').makeOptionMandatory(),
      option('--code <base64url>', 'of the push, encrypted as it came').makeOptionMandatory(),
      requestedByOption(),
    ],
    examples: ['tokens verify --nonce … --code … - <device.txt'],
  }).action(
    withDevice<{ nonce: string; code: string } & Requested>(async (tokens, device, options) => {
      const { nonce, code, json, requestedBy } = options;
      print(await tokens.verify(device!, { nonce, code }, { requestedBy }), json);
    }),
  );

  form(tokens, {
    name: 'check',
    description: 'Ask the router how the token stands. One that it has forgotten is NEW from then on.',
    args: [['[device]', `${ARGUMENT_HELP}; without it whichever the token has`]],
    examples: ['tokens check'],
  }).action(withDevice<object>(async (tokens, device, { json }) => print(await tokens.check(device), json)));

  form(tokens, {
    name: 'delete',
    description:
      'Forget the token and end all subscriptions. The router is told as soon as it can be reached.',
    args: [['[device]', `${ARGUMENT_HELP}; without it whichever the token has`]],
    options: [yesOption(), requestedByOption()],
    examples: ['tokens delete --yes'],
  }).action(
    withDevice<{ yes?: boolean } & Requested>(async (tokens, device, options) => {
      if (!options.yes)
        throw new UsageError('this would delete the token, and end all subscriptions: add --yes');
      await tokens.delete(device, { requestedBy: options.requestedBy });
      print('deleted', options.json);
      return EXIT.done;
    }),
  );
}

/** The action of a command about the device in its argument, if there is one, which is read before a server is asked. */
const withDevice = <Options>(
  work: (
    tokens: Session['operator']['tokens'],
    device: TokenDevice | undefined,
    options: Options & GlobalOptions,
  ) => Promise<ExitCode | void>,
) =>
  action<Options, [string?]>(async (options, argument) => {
    const device = argument === undefined ? undefined : await readDevice(argument);
    return withSession(['postgres', 'temporal'], ({ operator }) => work(operator.tokens, device, options));
  });

function print(status: string, json: boolean | undefined): void {
  if (json) printJson({ status });
  else printLine(status);
}

async function readDevice(argument: string): Promise<TokenDevice> {
  const [provider, token] = (await readSecret(argument, 'the device')).split(':');
  const parsed = deviceTokenSchema.safeParse({ provider, token });
  if (!parsed.success) throw new UsageError(`a device is ${DEVICE_HELP}`);
  return parsed.data;
}
