/**
 * Refuses words that make sentences hard to read: `npm run lint` fails when a folder has more of them than dev/words.json allows.
 *
 * - `node dev/words.ts FOLDER` lists the places in a folder.
 * - `node dev/words.ts --lower` writes the numbers that have become lower. A number never rises.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

const ROOT = path.dirname(import.meta.dirname);
const BASELINE = path.join(ROOT, 'dev/words.json');

/** Words, with what to write in their place. */
const WORDS: [word: string, instead: string][] = [
  ['whoever', 'the name of the actor'],
  ['nobody', 'the name of the actor, or "no process", "no operator"'],
  ['somebody', 'the name of the actor, or "an operator", "a user"'],
  ['anew', 'again'],
  ['mend(?:s|ed|ing)?', 'fix'],
  ['at once', 'immediately, or at the same time'],
  ['(?:is|are) none', 'invalid, or "does not exist"'],
  ['nor (?:do|does|did|is|are|has|have|can|will)', 'a sentence with its own subject'],
  ['of (?:its|their) own', 'its own, or their own'],
];
/** Part of a path, of a file name or of a longer name does not count. */
const PATTERNS = WORDS.map(
  ([word, instead]) =>
    [
      new RegExp(`(?<![\\w./-])(?:${word.replaceAll(' ', '\\s+(?:[*#/|-]+\\s+)?')})(?![\\w-]|[./]\\w)`, 'gi'),
      instead,
    ] as const,
);
const CHECKED =
  /\.(ts|mjs|js|md|sql|ya?ml|sh|go|py|jsonc|html|tmpl|txt)$|^(\.ci\/|bin\/|\.env\.example|Dockerfile)/;
/** Written by programs, or the list itself. */
const LEFT_OUT = /(^|\/)generated\/|^docs\/reference\/|^dev\/words\.ts$|^test\/histories\/.*\.json$/;

interface Place {
  folder: string;
  line: string;
}

function placesIn(file: string): Place[] {
  const text = readFileSync(path.join(ROOT, file), 'utf8');
  const folder = file.includes('/') ? file.split('/')[0]! : '.';
  return PATTERNS.flatMap(([pattern, instead]) =>
    [...text.matchAll(pattern)].map(({ 0: word, index }) => {
      const number = text.slice(0, index).split('\n').length;
      return { folder, line: `${file}:${number}: "${word.replace(/\s+/g, ' ')}": write ${instead}` };
    }),
  );
}

const places = spawnSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', '--deduplicate'], {
  cwd: ROOT,
  encoding: 'utf8',
  maxBuffer: 2 ** 24,
})
  .stdout.split('\n')
  .filter((file) => CHECKED.test(file) && !LEFT_OUT.test(file))
  .flatMap(placesIn);
const counts: Record<string, number> = {};
for (const { folder } of places) counts[folder] = (counts[folder] ?? 0) + 1;
const baseline = JSON.parse(readFileSync(BASELINE, 'utf8')) as Record<string, number>;

const [argument] = process.argv.slice(2);
if (argument === '--lower') {
  const lower = Object.entries(baseline).map(
    ([folder, most]) => [folder, Math.min(most, counts[folder] ?? 0)] as const,
  );
  const left = lower.filter(([, most]) => most > 0);
  writeFileSync(BASELINE, `${JSON.stringify(Object.fromEntries(left), undefined, 2)}\n`);
} else if (argument !== undefined) {
  for (const { folder, line } of places) if (folder === path.normalize(argument)) console.log(line);
} else {
  for (const [folder, count] of Object.entries(counts)) {
    const most = baseline[folder] ?? 0;
    if (count <= most) continue;
    console.error(`${folder} has ${count} words to avoid, at most ${most}: node dev/words.ts ${folder}`);
    process.exitCode = 1;
  }
}
