/** Refuses words that make sentences hard to read: `npm run lint` fails and lists the places. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';

const ROOT = path.dirname(import.meta.dirname);

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

/** Python's `is None`, and a word alone in quotes, such as the id of a user. */
const isCode = (word: string, quoted: string): boolean =>
  word.endsWith('None') || /^['"].*['"]$/s.test(quoted);

function placesIn(file: string): string[] {
  const text = readFileSync(path.join(ROOT, file), 'utf8');
  return PATTERNS.flatMap(([pattern, instead]) =>
    [...text.matchAll(pattern)]
      .filter(({ 0: word, index }) => !isCode(word, text.slice(index - 1, index + word.length + 1)))
      .map(({ 0: word, index }) => {
        const number = text.slice(0, index).split('\n').length;
        return `${file}:${number}: "${word.replace(/\s+/g, ' ')}": write ${instead}`;
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

for (const place of places) console.error(place);
if (places.length > 0) process.exitCode = 1;
