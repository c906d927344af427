/** Mutants made by program: those that are listed, and those that could be. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { glob } from 'node:fs/promises';
import path from 'node:path';
import { CHANGES, editsOf } from './changes.ts';
import type { Mutant, Suite, Tier } from './mutant.ts';

const ROOT = path.dirname(import.meta.dirname);
/** Those that a test notices: id, tier, suite, part of a title. Or those that none has to notice: id, `survives`, reason. */
const LIST = path.join(import.meta.dirname, 'generated.txt');
const ROOMS = '{workflows,activities,client}/**/*.ts';

export const hashOf = (text: string) => createHash('sha256').update(text).digest('hex');

const fileOf = (id: string): string => id.split(':')[0]!;

/** @param id see changes.ts. */
export function generatedMutant(id: string, suite: Suite): Mutant {
  const file = fileOf(id);
  const kind = id.replace(/^.*:|-\d+$/g, '') as keyof typeof CHANGES;
  const change = (source: string): string => {
    const edit = editsOf(file, source).get(id);
    if (edit === undefined)
      throw new Error(`${id}: ${file} has no such place: mutants/generated.txt is out of date`);
    return source.slice(0, edit.start) + edit.text + source.slice(edit.end);
  };
  return { id, file, change, suite, wrong: 'generated', what: CHANGES[kind] };
}

/** The mutants of the list that a test has to notice. */
export const readGenerated = (): Mutant[] =>
  linesOfList()
    .filter(([, tier]) => tier !== 'survives')
    .map(([id, tier, name, ...title]) =>
      generatedMutant(id!, {
        tier: tier as Tier,
        file: `test/${name}.${tier}.test.ts`,
        ...(title.length === 0 ? {} : { test: title.join(' ') }),
      }),
    );

/** @returns ids of places that the list does not have, in an order that goes round the files and stays as it is. */
export async function unlistedPlaces(isWanted: (id: string) => boolean): Promise<string[]> {
  const listed = new Set(linesOfList().map(([id]) => id));
  const ids: string[] = [];
  for await (const file of glob(ROOMS, { cwd: ROOT })) {
    if (file.includes('generated/')) continue;
    const ofFile = [...editsOf(file, readFileSync(path.join(ROOT, file), 'utf8')).keys()];
    // Elsewhere, what is decided in TypeScript has mutants that are written by hand.
    ids.push(...ofFile.filter((id) => file.startsWith('workflows/') || /:(sql|lua)-/.test(id)));
  }
  const byFile = Map.groupBy(ids.filter(isWanted), fileOf);
  const ranked = [...byFile.values()].flatMap((ofFile) =>
    ofFile
      .map((id) => ({ id, hash: hashOf(id) }))
      .sort((one, other) => (one.hash < other.hash ? -1 : 1))
      .map(({ id, hash }, round) => ({ id, rank: `${String(round).padStart(4, '0')} ${hash}` })),
  );
  return ranked
    .sort((one, other) => (one.rank < other.rank ? -1 : 1))
    .map(({ id }) => id)
    .filter((id) => !listed.has(id));
}

const linesOfList = (): string[][] =>
  readFileSync(LIST, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => line.split(' '));
