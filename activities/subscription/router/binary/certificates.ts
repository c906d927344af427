/** Whether the certificates of a TLS session belong to the router that an address names. */
import { createHash } from 'node:crypto';
import type { X509Certificate } from 'node:crypto';

/** Certificates of a router, with the one that its address names. */
const FEWEST = 2;
const MOST = 4;

/** Fingerprint of a certificate: SHA-256 of its DER, base64url. */
export function fingerprintOf(certificate: Buffer): string {
  return createHash('sha256').update(certificate).digest('base64url');
}

/**
 * The certificates as the peer has sent them, the leaf first, each followed by the one that signed it.
 *
 * @returns at most one more than a router may have.
 */
export function chainOf(leaf: X509Certificate): X509Certificate[] {
  const chain: X509Certificate[] = [];
  for (let next: X509Certificate | undefined = leaf; next && chain.length <= MOST;) {
    chain.push(next);
    const issuer: X509Certificate | undefined = next.issuerCertificate;
    next = issuer?.raw.equals(next.raw) === true ? undefined : issuer;
  }
  return chain;
}

/**
 * The certificate with the fingerprint is kept offline; those before it have been signed with it, one after the other,
 * and the last of them is the session's. An operator's own may stand behind it. Names and times make no difference.
 *
 * @returns why not, undefined when the chain is the router's.
 */
export function distrustOf(chain: readonly X509Certificate[], keyHash: string): string | undefined {
  if (chain.length < FEWEST || chain.length > MOST) {
    return `a router has ${FEWEST} to ${MOST} certificates, not ${chain.length}`;
  }
  const pinned = chain.findIndex(({ raw }, index) => index > 0 && fingerprintOf(raw) === keyHash);
  if (pinned === -1) return 'unknown CA';
  const isSigned = chain
    .slice(0, pinned)
    .every((certificate, index) => isSignedBy(certificate, chain[index + 1]!));
  return isSigned ? undefined : 'a certificate is not signed with the one behind it';
}

const isSignedBy = (certificate: X509Certificate, issuer: X509Certificate): boolean =>
  issuer.ca && certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey);
