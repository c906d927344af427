/** Everything that is generated from the contract of intents without a compiler of its own. */
import { readContracts } from './contract.ts';
import { goFile } from './go.ts';
import { pythonFiles } from './python.ts';
import { schemaFiles } from './schemas.ts';
import type { Vectors } from './vectors.ts';
import { vectorsOf } from './vectors.ts';

/** One entry on a line: a change of the contract shows as the lines that it changes. */
function vectorsText({ about, push_payloads: pushes, entries }: Vectors): string {
  const lines = (items: readonly object[]) => items.map((item) => `    ${JSON.stringify(item)}`).join(',\n');
  return `{\n  "about": ${JSON.stringify(about)},\n  "push_payloads": [\n${lines(pushes)}\n  ],\n  "entries": [\n${lines(entries)}\n  ]\n}\n`;
}

/** @returns path from the root of the project, and text. @throws Error where catalog, document and code disagree. */
export function derivedFiles(): [file: string, text: string][] {
  const contracts = readContracts();
  return [
    ...schemaFiles(contracts).map(([name, text]): [string, string] => [`api/intent/schemas/${name}`, text]),
    ['api/intent/vectors.json', vectorsText(vectorsOf(contracts))],
    ['clients/go/catalog_generated.go', goFile(contracts)],
    ...pythonFiles(contracts).map(([name, text]): [string, string] => [
      `clients/python/notificationintent/${name}`,
      text,
    ]),
  ];
}
