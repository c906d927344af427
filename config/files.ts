/**
 * Files that the configuration comes from: secrets, keys and certificates. They are replaced while processes run, so each
 * is remembered with the variable that names it and with what was in it.
 */
import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';

export interface ConfigFile {
  /** That names the file, such as `NOTIFICATION_REDIS_PASSWORD_FILE`. */
  variable: string;
  path: string;
  /** Undefined when it could not be read. */
  text: string | undefined;
}

/** @throws Error when there is no such file. */
export type ReadFile = (path: string, variable: string) => string;

export const readFromDisk: ReadFile = (path) => readFileSync(path, 'utf8');

/** Reads files, each once, and remembers them. */
export function rememberingReader(readFile: ReadFile) {
  const files: ConfigFile[] = [];
  return {
    files,

    /** @throws Error as the reader does. */
    read(variable: string, path: string): string {
      const known = files.find((file) => file.variable === variable && file.path === path);
      if (known?.text !== undefined) return known.text;
      const file: ConfigFile = known ?? { variable, path, text: undefined };
      if (!known) files.push(file);
      file.text = readFile(path, variable);
      return file.text;
    },

    /** For files that another program reads and reports on: perhaps only that program can read them. */
    readIfPossible(variable: string, path: string): string | undefined {
      try {
        return this.read(variable, path);
      } catch {
        return undefined;
      }
    },
  };
}

/** Parameters of a PostgreSQL address that name files. */
const DSN_FILES = ['sslrootcert', 'sslcert', 'sslkey'];

/** @returns the paths of the files that an address of PostgreSQL names. */
export function filesOfDsn(dsn: string): string[] {
  const { searchParams } = new URL(dsn);
  return DSN_FILES.flatMap((name) => searchParams.get(name) ?? []);
}

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
