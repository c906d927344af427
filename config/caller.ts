/** Variables by which this service proves who it is to a program that it calls by HTTP. */
import { z } from 'zod';
import { pem, webhookSecrets } from './values.ts';
import { variable } from './variables.ts';
import type { ConnectionName, InsecureValues, Wire } from './wire.ts';
import { openness, plainUrlGaps, weaknessOfKey, weaknessOfSecret } from './wire.ts';

/**
 * What stand-ins verify signatures with, and calls are signed with outside production, where no secret is configured.
 * Everybody knows it.
 */
export const DEVELOPMENT_SIGNING_SECRET = 'whsec_ZXZlcnlib2R5IGtub3dzIHRoaXMgc2VjcmV0';

/** RFC 6750. */
const bearerToken = z.string().regex(/^[A-Za-z0-9._~+/-]+=*$/, 'must be letters, digits and ._~+/-');

/** @param prefix of the names, such as `NOTIFICATION_PORTFOLIO`. @param name as `doctor` shows it. */
export function callerVariables<const Prefix extends string>(prefix: Prefix, name: string) {
  const rows = {
    TOKEN: variable(bearerToken, `Bearer token for calls to the ${name}.`, { secret: true }),
    CA_FILE: variable(
      pem,
      `Authority that signed the certificate of the ${name}, PEM; without one, those that Node trusts.`,
      { inFile: true },
    ),
    CERT_FILE: variable(pem, `Certificate to show to the ${name}, PEM, with its key below.`, {
      inFile: true,
    }),
    KEY_FILE: variable(pem, 'Private key of that certificate, PEM.', { inFile: true }),
  };
  return prefixed(prefix, rows);
}

/** @param prefix as of {@link callerVariables}. */
export function signingVariables<const Prefix extends string>(prefix: Prefix, name: string) {
  return prefixed(prefix, {
    SIGNING_SECRETS: variable(
      webhookSecrets,
      `Secrets that sign calls to the ${name}, whsec_ and base64 of 24 to 64 bytes, comma-separated; all of them sign.`,
      { secret: true },
    ),
  });
}

function prefixed<const Prefix extends string, Rows extends Record<string, unknown>>(
  prefix: Prefix,
  rows: Rows,
) {
  return Object.fromEntries(Object.entries(rows).map(([suffix, row]) => [`${prefix}_${suffix}`, row])) as {
    [Suffix in keyof Rows as `${Prefix}_${Suffix & string}`]: Rows[Suffix];
  };
}

/** The values of {@link callerVariables} and {@link signingVariables} under their prefix. */
export type CallerValues<Prefix extends string> = {
  [Name in `${Prefix}_${'TOKEN' | 'CA_FILE' | 'CERT_FILE' | 'KEY_FILE'}`]: string | undefined;
} & { [Name in `${Prefix}_SIGNING_SECRETS`]?: readonly string[] | undefined };

/**
 * How calls prove who makes them.
 *
 * @param production elsewhere, what is to be signed is signed with the secret of the stand-ins, when there is no other.
 */
export function callerCredentials<const Prefix extends string>(
  { values, production }: { values: CallerValues<Prefix>; production: boolean },
  prefix: Prefix,
) {
  const given = values as Record<string, unknown>;
  const text = (suffix: string) => given[`${prefix}_${suffix}`] as string | undefined;
  const secrets = given[`${prefix}_SIGNING_SECRETS`] as readonly string[] | undefined;
  return {
    token: text('TOKEN'),
    ca: text('CA_FILE'),
    cert: text('CERT_FILE'),
    key: text('KEY_FILE'),
    signingSecrets: secrets ?? (production ? [] : [DEVELOPMENT_SIGNING_SECRET]),
  };
}

/** One line for each half of a pair that is alone. */
export function callerContradictions(values: object, prefix: string): string[] {
  const isSet = (suffix: string) => (values as Record<string, unknown>)[`${prefix}_${suffix}`] !== undefined;
  return isSet('CERT_FILE') === isSet('KEY_FILE')
    ? []
    : [`${prefix}_CERT_FILE and ${prefix}_KEY_FILE belong together: set both`];
}

interface Called<Prefix extends string> {
  prefix: Prefix;
  name: string;
  connection: ConnectionName;
  /** Variable that says where it is. */
  address: string;
  urls: readonly string[];
  /** Whether what it is sent must be signed; otherwise a token or a client certificate proves who calls. */
  isSigned: boolean;
}

/** Calls to a program: none while it has no address. */
export function callerWires<const Prefix extends string>(
  values: CallerValues<Prefix> & InsecureValues,
  { prefix, name, connection, address, urls, isSigned }: Called<Prefix>,
): Wire[] {
  if (urls.length === 0) return [];
  const { token, cert, signingSecrets } = callerCredentials({ values, production: true }, prefix);
  const [plain] = urls.flatMap((url) => plainUrlGaps(address, url));
  const weakToken = token === undefined ? undefined : weaknessOfSecret(token);
  const weakSecret = signingSecrets.map(weaknessOfSigning).find((weakness) => weakness !== undefined);
  const isProven = isSigned ? signingSecrets.length > 0 : token !== undefined || cert !== undefined;
  return [
    {
      name,
      ...openness(values, connection),
      gaps: [
        ...(plain === undefined ? [] : [plain]),
        ...(isProven
          ? []
          : [
              isSigned
                ? `${prefix}_SIGNING_SECRETS must be set: the ${name} cannot tell who calls`
                : `${prefix}_TOKEN must be set, or ${prefix}_CERT_FILE and …_KEY_FILE: the ${name} cannot tell who calls`,
            ]),
        ...(weakToken === undefined ? [] : [`${prefix}_TOKEN can be guessed: ${weakToken}`]),
        ...(weakSecret === undefined ? [] : [`${prefix}_SIGNING_SECRETS can be guessed: ${weakSecret}`]),
      ],
    },
  ];
}

function weaknessOfSigning(secret: string): string | undefined {
  if (secret === DEVELOPMENT_SIGNING_SECRET) return 'everybody knows this one';
  return weaknessOfKey(Buffer.from(secret.replace('whsec_', ''), 'base64'));
}
