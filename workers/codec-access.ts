/**
 * Who may use the codec server, and for what: people by the access token of the Web UI, a JWT that their identity provider
 * has signed; outside production also a caller with the shared token.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { JWTPayload } from 'jose';
import { createRemoteJWKSet, errors, jwtVerify } from 'jose';

/** Keys of the issuer that verify signatures; a token with a shared secret or without a signature is no proof. */
const ALGORITHMS = ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512', 'ES256', 'ES384', 'ES512', 'EdDSA'];
const KEYS_LIMIT_MS = 5_000;
const CLOCK_TOLERANCE_S = 30;
/** A permission for this namespace is one for all of them, as Temporal itself has it. */
const ALL_NAMESPACES = 'temporal-system';
const READING_ROLES = ['read', 'write', 'worker', 'admin'];

export interface TokenIssuer {
  /** Where its public keys are. */
  jwksUrl: string;
  /** Must be the claim `iss`. */
  issuer: string;
  /** Must be in the claim `aud`. */
  audience: string;
  /** Lists what the caller may do, as `namespace:role`. */
  permissionsClaim: string;
}

export interface Caller {
  /** The claim `sub`; `shared token` for a caller with that token. */
  who: string;
  /** Whether there is a namespace that the caller may read. */
  readsAny: boolean;
  mayRead(namespace: string): boolean;
}

/** The keys of the issuer are out of reach, so the identity of the caller cannot be checked. */
export class IssuerUnavailableError extends Error {
  override name = 'IssuerUnavailableError';
}

export interface AccessOptions {
  /** The current token; undefined: no caller can have one. */
  sharedToken: () => string | undefined;
  issuer: TokenIssuer | undefined;
}

/**
 * @returns finds out who calls, by the header `authorization`; undefined for a caller without proof.
 * @throws IssuerUnavailableError.
 */
export function callerCheck({
  sharedToken,
  issuer,
}: AccessOptions): (authorization: string | undefined) => Promise<Caller | undefined> {
  const verify = issuer && tokenCheck(issuer);
  return async (authorization) => {
    const credentials = credentialsIn(authorization);
    if (credentials === undefined) return undefined;
    const shared = sharedToken();
    if (shared !== undefined && isSame(credentials.secret, shared)) {
      return { who: 'shared token', readsAny: true, mayRead: () => true };
    }
    return credentials.isBearer ? verify?.(credentials.secret) : undefined;
  };
}

function tokenCheck({ jwksUrl, issuer, audience, permissionsClaim }: TokenIssuer) {
  const keys = createRemoteJWKSet(new URL(jwksUrl), { timeoutDuration: KEYS_LIMIT_MS });
  return async (token: string): Promise<Caller | undefined> => {
    let claims: JWTPayload;
    try {
      ({ payload: claims } = await jwtVerify(token, keys, {
        issuer,
        audience,
        algorithms: ALGORITHMS,
        requiredClaims: ['sub', 'exp'],
        clockTolerance: CLOCK_TOLERANCE_S,
      }));
    } catch (error) {
      if (isAboutTheToken(error)) return undefined;
      throw new IssuerUnavailableError('the keys of the issuer cannot be read', { cause: error });
    }
    const permissions = permissionsIn(claims[permissionsClaim]);
    const mayRead = (namespace: string) =>
      [namespace, ALL_NAMESPACES].some((of) =>
        READING_ROLES.some((role) => permissions.has(`${of}:${role}`)),
      );
    const readsAny = [...permissions].some((permission) => READING_ROLES.includes(roleOf(permission)));
    return { who: claims.sub!, readsAny, mayRead };
  };
}

/** What the library throws for tokens and for keys differs by class only. */
function isAboutTheToken(error: unknown): boolean {
  return (
    error instanceof errors.JOSEError &&
    !(error instanceof errors.JWKSTimeout) &&
    !(error instanceof errors.JWKSInvalid) &&
    error.code !== 'ERR_JOSE_GENERIC'
  );
}

const roleOf = (permission: string): string => permission.slice(permission.lastIndexOf(':') + 1);

function permissionsIn(claim: unknown): Set<string> {
  if (typeof claim === 'string') return new Set(claim.split(' '));
  return new Set(Array.isArray(claim) ? claim.filter((one) => typeof one === 'string') : []);
}

/** A browser sends the password of basic authentication, everybody else a bearer token. */
function credentialsIn(header: string | undefined): { secret: string; isBearer: boolean } | undefined {
  const [, bearer, basic] = /^(?:bearer (.+)|basic (.+))$/i.exec(header ?? '') ?? [];
  if (bearer !== undefined) return { secret: bearer, isBearer: true };
  if (basic === undefined) return undefined;
  const userAndPassword = Buffer.from(basic, 'base64').toString('utf8');
  return { secret: userAndPassword.slice(userAndPassword.indexOf(':') + 1), isBearer: false };
}

/** In a time that says nothing about where they differ. */
function isSame(given: string, token: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(token));
}
