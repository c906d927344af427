/** When the certificates in the files of the configuration expire. */
import { X509Certificate } from 'node:crypto';
import type { ConfigFile } from './files.ts';

export interface CertificateExpiry {
  variable: string;
  path: string;
  /** Ms since the epoch. */
  expiresAt: number;
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g;

/**
 * One line for each file with certificates. A chain is good for as long as all of it is. Several authorities are good for
 * as long as one of them is: the old one stays beside the new one while certificates change.
 */
export function certificateExpiries(files: readonly ConfigFile[]): CertificateExpiry[] {
  return files.flatMap(({ variable, path, text = '' }) => {
    const certificates = (text.match(CERTIFICATE) ?? []).flatMap(parsed);
    if (certificates.length === 0) return [];
    const times = certificates.map(({ validTo }) => Date.parse(validTo));
    const expiresAt = certificates.every(({ ca }) => ca) ? Math.max(...times) : Math.min(...times);
    return [{ variable, path, expiresAt }];
  });
}

/** Parses certificates. The client that connects refuses an invalid one. */
function parsed(pem: string): X509Certificate[] {
  try {
    return [new X509Certificate(pem)];
  } catch {
    return [];
  }
}
