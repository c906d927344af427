/**
 * Runs an npm script of tests: `node .ci/tests.mjs SCRIPT REPORT COUNTS [OPTION OF JEST ...]`. Files with a failed test run a second time. Appends to
 * REPORT each test that failed or passed only then, with the beginning of its first failure, and to COUNTS a line
 * `<passed> <failed>`.
 */
import { spawnSync } from 'node:child_process';
import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { stripVTControlCharacters } from 'node:util';

const MESSAGE_LINES = 20;
/** If more files fail, the cause is the change, and a second run would only take time. */
const MOST_FILES_AGAIN = 10;

const [script, report, counts, ...options] = process.argv.slice(2);
const folder = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-ci-'));

const first = run();
const failures = failuresOf(first.results);
const files = [...new Set(failures.map(({ file }) => file))];
const isTriedAgain = files.length > 0 && files.length <= MOST_FILES_AGAIN;
if (isTriedAgain) console.log(`== npm run ${script}, once more: ${files.join(' ')}`);
const second = isTriedAgain ? run(['--runTestsByPath', ...files]) : undefined;
rmSync(folder, { recursive: true });

const failedAgain = failuresOf(second?.results);
for (const failure of failures) failure.isFinal = !second?.results || failedAgain.some(isSame(failure));
for (const failure of failures) {
  say(failure.isFinal ? 'FAILED' : 'PASSED ONLY THE SECOND TIME', keyOf(failure), failure.message);
}
for (const failure of failedAgain) {
  const isNew = !failures.some((other) => isSame(other)(failure));
  if (isNew) say('FAILED ONLY THE SECOND TIME', keyOf(failure), failure.message);
}
let failed = failures.filter(({ isFinal }) => isFinal).length;
const passed = (first.results?.numPassedTests ?? 0) + failures.length - failed;
for (const { exitCode, results } of second ? [first, second] : [first]) {
  if (exitCode === 0 || failuresOf(results).length > 0) continue;
  failed += 1;
  say('FAILED', `npm run ${script}, outside of its tests`, results ? '' : 'it left no results');
}
appendFileSync(counts, `${passed} ${failed}\n`);

/** A file that did not load has no name of a test, and stands for all of its tests. */
function isSame({ file, name }) {
  return (other) =>
    other.file === file && (name === undefined || other.name === undefined || other.name === name);
}

function keyOf({ file, name }) {
  return name === undefined ? file : `${file}: ${name}`;
}

function run(args = []) {
  const output = path.join(folder, `results-${args.length}.json`);
  const { status } = spawnSync(
    'npm',
    ['run', script, '--', '--ci', '--json', `--outputFile=${output}`, ...options, ...args],
    {
      stdio: 'inherit',
    },
  );
  return {
    exitCode: status,
    results: existsSync(output) ? JSON.parse(readFileSync(output, 'utf8')) : undefined,
  };
}

/** Each failed test, and each file that failed without one. */
function failuresOf(results) {
  return (results?.testResults ?? []).flatMap(({ name: full, status, message, assertionResults }) => {
    const file = path.relative('.', full);
    const failed = assertionResults.filter((test) => test.status === 'failed');
    if (failed.length === 0) return status === 'failed' ? [{ file, message }] : [];
    return failed.map(({ fullName, failureMessages }) => ({
      file,
      name: fullName,
      message: failureMessages.join('\n'),
    }));
  });
}

function say(what, name, message) {
  const lines = stripVTControlCharacters(message).split('\n').slice(0, MESSAGE_LINES);
  appendFileSync(report, `== ${what} ${name}\n${lines.map((line) => `    ${line}\n`).join('')}`);
}
