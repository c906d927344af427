/** The command line of the live run. */
import { parseArgs } from 'node:util';
import type { BinaryAddress } from '../../api/subscription/router-address.ts';
import type { QueueServer } from '../stand-ins/subscription/application.ts';
import { AddressError, parseBinaryAddress } from '../../api/subscription/router-address.ts';
import { SelfExplanatoryError } from '../../api/errors.ts';

const DEFAULT_PUSH_FOLDER = '.data/push-provider';
const SECOND_MS = 1_000;
const LONGEST_LIMIT_SECONDS = 3_600;

export const HELP = `Usage: npm run test:routers -- --smp smp://… --ntf ntf://… [options]

Takes a subscription through its life on running routers, official ones of version 5.8 or later for instance: registers
and verifies a device token, makes a queue and a subscription, sends a message and opens the notification of it, puts
another queue in the place of the first, sends again, and deletes everything. Prints what each step saw.

  --smp ADDRESS       the messaging router: smp://fingerprint[:password]@host[,host…][:port]
  --ntf ADDRESS       the notification router: ntf://fingerprint@host[,host…][:port]
  --routers BOTH      both addresses with a space between them; also the variable TEST_ROUTERS
  --push-host HOST    where the push provider listens; default 127.0.0.1
  --push-port PORT    default 443, where an official router looks for it
  --push-folder DIR   where the provider's certificate and key are kept; default ${DEFAULT_PUSH_FOLDER}
  --prepare           make that certificate, say where it is, and end
  --limit SECONDS     for a connection, an answer, a status and a push each; default 30
  --json              one JSON document instead of lines
  --help              this text

The device token is one of the test provider, AT. For it an official notification router pushes to https://localhost:443,
as seen from the router, and this command listens there. On the side of the router it needs:

  [TRANSPORT] port    in ntf-server.ini: another port than 443
  APNS_KEY_FILE       a file with any private key of the curve P-256, PKCS #8 in PEM, not encrypted
  APNS_KEY_ID         any ten characters: pushes are signed with that key, and this command ignores it
  /etc/ssl/cert.pem   the authorities that it trusts: append certificate.pem of --push-folder
  localhost:443       leads to this command: run it on the machine, or in the network namespace, of the router, or
                      forward the port
  --smp               the address is handed to the notification router, which must reach the messaging router by it

The exit code is 0 when all steps went well, 1 when one failed, which is named, 2 for wrong usage, and 130 after Ctrl-C,
which deletes what was made until then.
`;

/** What was given is not what the command takes. The text names the option. */
export class WrongUsage extends SelfExplanatoryError {
  override name = 'WrongUsage';
}

export interface Options {
  smp: BinaryAddress & QueueServer;
  ntf: BinaryAddress;
  pushHost: string;
  pushPort: number;
  limitMs: number;
}

/** What is done before, or instead. */
export interface Wishes {
  help: boolean;
  prepare: boolean;
  json: boolean;
  pushFolder: string;
  /** @throws WrongUsage */
  options(): Options;
}

/** @throws WrongUsage */
export function parseWishes(args: readonly string[]): Wishes {
  const values = valuesOf(args);
  return {
    help: values.help,
    prepare: values.prepare,
    json: values.json,
    pushFolder: values['push-folder'],
    options: () => {
      const both = values.routers.split(/\s+/);
      const addressOf = (protocol: 'smp' | 'ntf') =>
        addressIn(protocol, values[protocol] ?? both.find((text) => text.startsWith(`${protocol}://`)));
      return {
        ...{ smp: addressOf('smp'), ntf: addressOf('ntf'), pushHost: values['push-host'] },
        pushPort: wholeNumber('--push-port', values['push-port'], 65_535),
        limitMs: wholeNumber('--limit', values.limit, LONGEST_LIMIT_SECONDS) * SECOND_MS,
      };
    },
  };
}

function valuesOf(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        smp: { type: 'string' },
        ntf: { type: 'string' },
        routers: { type: 'string', default: '' },
        'push-host': { type: 'string', default: '127.0.0.1' },
        'push-port': { type: 'string', default: '443' },
        'push-folder': { type: 'string', default: DEFAULT_PUSH_FOLDER },
        prepare: { type: 'boolean', default: false },
        limit: { type: 'string', default: '30' },
        json: { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
      },
    }).values;
  } catch (error) {
    throw new WrongUsage((error as Error).message);
  }
}

function addressIn(protocol: 'smp' | 'ntf', text: string | undefined): BinaryAddress & QueueServer {
  if (text === undefined) {
    throw new WrongUsage(`--${protocol} is missing: an address, or one in --routers`);
  }
  try {
    const address = parseBinaryAddress(text);
    if (address.protocol !== protocol) throw new AddressError(`the scheme is ${protocol}`);
    // The application's, which the product has no use for.
    const password = /^smp:\/\/[^:@]*:([^@]*)@/.exec(text)?.[1];
    return { ...address, password };
  } catch (error) {
    if (error instanceof AddressError) throw new WrongUsage(`--${protocol}: ${error.message}`);
    throw error;
  }
}

function wholeNumber(option: string, text: string, most: number): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < 1 || value > most) {
    throw new WrongUsage(`${option} is a whole number of 1 to ${most}`);
  }
  return value;
}
