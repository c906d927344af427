/** `--propose`: tries places that the list of generated mutants lacks, and prints the lines of those that a test notices. */
import { readFileSync } from 'node:fs';
import { glob } from 'node:fs/promises';
import path from 'node:path';
import ts from 'typescript';
import { report } from '../dev/program.ts';
import { editsOf, isText } from './changes.ts';
import { generatedMutant, unlistedPlaces } from './generated.ts';
import { nodesOf } from './places.ts';
import { isKilled } from './report.ts';
import type { Scratch } from './scratch.ts';
import { ROOT } from './scratch.ts';
import type { Selection, createSuites } from './suites.ts';

/** What reach.mjs notes. */
interface Reached {
  file: string;
  test?: string;
  text: string;
}

export async function propose(
  {
    count,
    isWanted,
    reachFile,
  }: { count: number; isWanted: (id: string) => boolean; reachFile: string | undefined },
  scratch: Scratch,
  suites: ReturnType<typeof createSuites>,
): Promise<void> {
  const reached = reachFile === undefined ? [] : readReached(reachFile);
  for (const id of (await unlistedPlaces(isWanted)).slice(0, count)) {
    const mutant = generatedMutant(id, { tier: 'unit', file: '' });
    const isOfStores = /:(sql|lua)-[a-z-]+\d+$/.test(id);
    const selections = isOfStores ? reaching(id, reached) : [await importing(mutant.file)];
    const undo = scratch.apply(mutant);
    let line = `${id} ${selections.length === 0 ? 'is not reached' : 'SURVIVES'}`;
    for (const selection of selections) {
      const result = await suites.run(selection, mutant.file);
      if (!isKilled({ mutant, result })) continue;
      const suite = /^test\/(.+)\.(\w+)\.test\.ts$/.exec(result.failedIn ?? '');
      const title = isOfStores && suite ? beginningOf(result.failed ?? '', result.failedIn!) : '';
      if (suite) line = `${id} ${suite[2]} ${suite[1]}${title}`;
      else line = `${id} ends the run`;
      break;
    }
    undo();
    if (/ (unit|workflow|service) /.test(line)) process.stdout.write(`${line}\n`);
    else report(line);
  }
}

/**
 * Tests of workflows of the same kind of work, and unit tests that import the file. A history is replayed to keep a workflow
 * compatible: that tells nothing of what the workflow should do.
 */
async function importing(file: string): Promise<Selection> {
  const kind = file.split('/').length > 2 ? file.split('/')[1]! : '*';
  const files: string[] = [];
  const ofWorkflows = [`test/${kind}/*.workflow.test.ts`, 'test/details.workflow.test.ts'];
  for await (const test of glob(ofWorkflows, { cwd: ROOT }))
    if (!test.includes('histories')) files.push(test);
  for await (const test of glob('test/**/*.unit.test.ts', { cwd: ROOT }))
    if (readFileSync(path.join(ROOT, test), 'utf8').includes(`/${file}'`)) files.push(test);
  return { tiers: ['unit', 'workflow'], files };
}

const MOST_FILES = 3;
const MOST_TESTS = 10;
/** A test that sends more is about none of them. */
const MOST_STATEMENTS = 100;

/** Service tests that send the statement or script of a place, of the same kind of work first. */
function reaching(id: string, reached: readonly Reached[]): Selection[] {
  const [file] = id.split(':') as [string];
  const texts = textsAround(id, file);
  const tests = reached.filter(
    ({ text, test }) => test !== undefined && texts.length > 0 && texts.every((part) => text.includes(part)),
  );
  const isOfKind = (test: string): boolean => test.includes(`/test/${file.split('/')[1]}/`);
  return [...Map.groupBy(tests, (one) => one.file)]
    .sort(([one], [other]) => Number(isOfKind(other)) - Number(isOfKind(one)))
    .slice(0, MOST_FILES)
    .map(([test, ofFile]) => ({
      tiers: ['service'],
      files: [path.relative(ROOT, test)],
      titles: [...new Set(ofFile.map((one) => one.test!))].slice(0, MOST_TESTS),
    }));
}

/** The literal texts of the statement or script that a place is in, as far as they are long enough to know it by. */
function textsAround(id: string, file: string): string[] {
  const source = readFileSync(path.join(ROOT, file), 'utf8');
  const { start, end } = editsOf(file, source).get(id)!;
  const literal = nodesOf(source).findLast(
    ({ node }) => isText(node) && node.getStart() <= start && node.getEnd() >= end,
  );
  const pieces =
    literal && ts.isTemplateExpression(literal.node)
      ? [literal.node.head, ...literal.node.templateSpans.map((span) => span.literal)]
      : [literal!.node as ts.StringLiteralLike];
  return pieces.map(({ text }) => text).filter((text) => text.length > 20);
}

/** @returns as many words of a title as its file has in one piece, but few. */
function beginningOf(title: string, file: string): string {
  const source = readFileSync(path.join(ROOT, file), 'utf8');
  const words = title.split(' ').slice(0, 6);
  while (words.length > 0 && !source.includes(words.join(' '))) words.pop();
  return words.length === 0 ? '' : ` ${words.join(' ')}`;
}

/** @returns what tests reach, from the test that sends the fewest statements on: it is about these. */
function readReached(file: string): Reached[] {
  const lines = readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => line !== '');
  const reached = lines.map((line) => JSON.parse(line) as Reached);
  const ofTests = Map.groupBy(reached, ({ file: test, test: title = '' }) => `${test} ${title}`);
  const specific = [...ofTests.values()].filter(({ length }) => length <= MOST_STATEMENTS);
  return specific.sort((one, other) => one.length - other.length).flat();
}
