/** Files that are generated from the catalog without an external compiler. */
import { readFileSync } from 'node:fs';
import type { CatalogDocument } from '../../api/intent/catalog.ts';
import { GALAXY, GALAXY_FILE, documentOf } from '../../api/intent/galaxy.ts';
import { flatBuffersSchemaOf } from '../../api/intent/outbound-entries.ts';
import { goFile } from '../../api/intent/generators/go.ts';
import { pythonFiles } from '../../api/intent/generators/python.ts';
import { typeScriptFile } from '../../api/intent/generators/typescript.ts';
import type { Vectors } from './vectors.ts';
import { vectorsOf } from './vectors.ts';

/** One entry on a line: a change of the contract shows as the lines that it changes. */
function vectorsText({ about, push_payloads: pushes, entries }: Vectors): string {
  const lines = (items: readonly object[]) => items.map((item) => `    ${JSON.stringify(item)}`).join(',\n');
  return `{\n  "about": ${JSON.stringify(about)},\n  "push_payloads": [\n${lines(pushes)}\n  ],\n  "entries": [\n${lines(entries)}\n  ]\n}\n`;
}

/** @returns path from the root of the project, and text. @throws Error where catalog, document and code disagree. */
export function derivedFiles(): [file: string, text: string][] {
  const document = documentOf(readFileSync(GALAXY_FILE, 'utf8')) as CatalogDocument;
  return [
    ['api/intent/notification.fbs', flatBuffersSchemaOf(GALAXY)],
    [
      'client/generated/galaxy.ts',
      typeScriptFile(GALAXY, document, { name: 'GALAXY', module: '../constructors.ts' }),
    ],
    ['api/intent/vectors.json', vectorsText(vectorsOf(GALAXY))],
    ['clients/go/catalog_generated.go', goFile(GALAXY)],
    ...pythonFiles(GALAXY, false).map(([name, text]): [string, string] => [
      `clients/python/notificationintent/${name}`,
      text,
    ]),
  ];
}
