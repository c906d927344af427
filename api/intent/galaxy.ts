/** The catalog of an installation: Galaxy's own, or the text of a file that takes its place. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { parse } from 'yaml';
import type { Catalog } from './catalog.ts';
import { CatalogError, catalogOf } from './catalog.ts';

/** @param text YAML or JSON. @throws CatalogError that names every fault with its place. */
export function parseCatalog(text: string): Catalog {
  return catalogOf(documentOf(text));
}

/** @returns what a file of a catalog says, before any check. @throws CatalogError when it is neither YAML nor JSON. */
export function documentOf(text: string): unknown {
  try {
    // The library takes 100 aliases unless told otherwise, and a large catalog has one for each field. What aliases of aliases
    // multiply to counts against the limit, so no file exhausts the memory.
    return parse(text, { maxAliasCount: 10_000 });
  } catch (error) {
    throw new CatalogError([`the file is no YAML: ${(error as Error).message.split('\n')[0]}`]);
  }
}

/** The 18 types of Galaxy, which are known without NOTIFICATION_CATALOG_FILE. */
export const GALAXY_FILE = path.join(import.meta.dirname, '../../catalog/galaxy.yaml');
export const GALAXY: Catalog = parseCatalog(readFileSync(GALAXY_FILE, 'utf8'));
