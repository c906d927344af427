/**
 * Generates what follows from catalog/galaxy.yaml: notification.fbs with its classes in Go, the JSON Schemas, the vectors, and
 * the clients in TypeScript, Go and Python.
 *
 *   node api/generate.mjs           writes them
 *   node api/generate.mjs --check   compares, and changes nothing
 *
 * Exit code 1 on any difference, and when the FlatBuffers schema breaks those who know an older one.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { checkFlatBuffers, generateFlatBuffers } from './intent/generators/flatbuffers.mjs';

const ROOT = dirname(import.meta.dirname);

function textOf(file) {
  try {
    return readFileSync(join(ROOT, file), 'utf8');
  } catch {
    return undefined;
  }
}

async function derived() {
  const { derivedFiles } = await import('./intent/generators/derived-files.ts');
  return derivedFiles();
}

async function check() {
  return (await derived())
    .filter(([file, text]) => textOf(file) !== text)
    .map(([file]) => `${file} is out of date: npm run generate`);
}

async function generate() {
  for (const [file, text] of await derived()) {
    mkdirSync(dirname(join(ROOT, file)), { recursive: true });
    writeFileSync(join(ROOT, file), text);
  }
  return [];
}

const problems = process.argv.includes('--check')
  ? [...(await check()), ...checkFlatBuffers()]
  : [...(await generate()), ...generateFlatBuffers()];
for (const problem of problems) console.error(problem);
process.exitCode = problems.length === 0 ? 0 : 1;
