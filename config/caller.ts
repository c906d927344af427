/** Variables by which this service proves who it is to the programs that it calls by HTTP. */
import { duration, pem, webhookSecrets } from './variables.ts';
import type { ValuesOf } from './variables.ts';
import type { ConnectionName, Place, Wire } from './wire.ts';
import { guessable, linesThat, plainUrlGaps, weaknessOfKey } from './wire.ts';

/**
 * What stand-ins verify signatures with, and calls are signed with outside production, where no secret is configured.
 * Everybody knows it.
 */
export const DEVELOPMENT_SIGNING_SECRET = 'whsec_ZXZlcnlib2R5IGtub3dzIHRoaXMgc2VjcmV0';

/** A process has one identity, whichever program it calls. */
export const HTTP_VARIABLES = {
  NOTIFICATION_HTTP_CA_FILE: pem
    .describe(
      'Authorities that signed the certificates of the User Service, the portfolio service and the symbol targets, PEM; without them, those that Node trusts.',
    )
    .meta({ inFile: true }),
  NOTIFICATION_HTTP_CERT_FILE: pem
    .describe('Certificate to show to these, PEM, with its key below.')
    .meta({ inFile: true }),
  NOTIFICATION_HTTP_KEY_FILE: pem.describe('Private key of that certificate, PEM.').meta({ inFile: true }),
  NOTIFICATION_HTTP_TIMEOUT: duration
    .prefault('5s')
    .describe('Time-out of one callback, and of one push of symbols.'),
};
type HttpValues = ValuesOf<typeof HTTP_VARIABLES>;

/** @param name of the program that is called, as `doctor` shows it. */
export const signingVariable = (name: string) =>
  webhookSecrets
    .describe(
      `Secrets that sign calls to the ${name}, whsec_ and base64 of 24 to 64 bytes, comma-separated; all of them sign.`,
    )
    .meta({ secret: true });

/**
 * How calls prove who makes them.
 *
 * @param production elsewhere, what is to be signed is signed with the secret of the stand-ins, when there is no other.
 * @param prefix of the program's own variables, such as `NOTIFICATION_PORTFOLIO`.
 */
export function callerCredentials(
  { values, production }: { values: HttpValues; production: boolean },
  prefix: string,
) {
  const own = values as unknown as Record<string, unknown>;
  return {
    token: own[`${prefix}_TOKEN`] as string | undefined,
    ca: values.NOTIFICATION_HTTP_CA_FILE,
    cert: values.NOTIFICATION_HTTP_CERT_FILE,
    key: values.NOTIFICATION_HTTP_KEY_FILE,
    signingSecrets:
      (own[`${prefix}_SIGNING_SECRETS`] as readonly string[] | undefined) ??
      (production ? [] : [DEVELOPMENT_SIGNING_SECRET]),
  };
}

interface Called {
  prefix: string;
  name: string;
  connection: ConnectionName;
  /** Variable that says where it is. */
  address: string;
  places: readonly Place[];
  /** Whether what it is sent must be signed; otherwise a token or a client certificate proves who calls. */
  isSigned: boolean;
  /** What happens while it does not answer; without it `doctor` tries no connection. */
  meanwhile?: string;
}

/** @returns the one place of a program; none while it has no address. */
export const placeAt = (name: string, url: string | undefined): Place[] =>
  url === undefined ? [] : [{ name, url }];

/** Calls to a program: none while it has no address. */
export function callerWires(
  values: HttpValues,
  { prefix, name, connection, address, places, isSigned, meanwhile }: Called,
): Wire[] {
  if (places.length === 0) return [];
  const { token, cert, signingSecrets } = callerCredentials({ values, production: true }, prefix);
  const isProven = isSigned ? signingSecrets.length > 0 : token !== undefined || cert !== undefined;
  const needed = isSigned
    ? `${prefix}_SIGNING_SECRETS must be set`
    : `${prefix}_TOKEN must be set, or NOTIFICATION_HTTP_CERT_FILE and …_KEY_FILE`;
  return [
    {
      ...{ name, connection },
      ...(meanwhile === undefined ? {} : { farSide: { places, meanwhile } }),
      gaps: [
        ...places.flatMap(({ url }) => plainUrlGaps(address, url)).slice(0, 1),
        ...linesThat([!isProven, `${needed}: the ${name} cannot tell who calls`]),
        ...guessable(`${prefix}_TOKEN`, token),
        ...signingSecrets
          .flatMap((secret) => guessable(`${prefix}_SIGNING_SECRETS`, secret, weaknessOfSigning))
          .slice(0, 1),
      ],
    },
  ];
}

function weaknessOfSigning(secret: string): string | undefined {
  if (secret === DEVELOPMENT_SIGNING_SECRET) return 'everybody knows this one';
  return weaknessOfKey(Buffer.from(secret.replace('whsec_', ''), 'base64'));
}
