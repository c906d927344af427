/**
 * Reads the results that Jest has written: `node .ci/results.mjs FILE LIST` prints how many tests passed and failed, and adds
 * to LIST what failed, with the beginning of each message.
 */
import { appendFileSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { stripVTControlCharacters } from 'node:util';

const MESSAGE_LINES = 20;

const [file, list] = process.argv.slice(2);
const results = JSON.parse(readFileSync(file, 'utf8'));

const failures = results.testResults.flatMap(({ name, status, message, assertionResults }) => {
  const failed = assertionResults.filter((test) => test.status === 'failed');
  const where = path.relative('.', name);
  if (failed.length === 0) return status === 'failed' ? [describe(where, message)] : [];
  return failed.map(({ fullName, failureMessages }) =>
    describe(`${where}: ${fullName}`, failureMessages.join('\n')),
  );
});
for (const failure of failures) appendFileSync(list, failure);
console.log(results.numPassedTests, results.numFailedTests + results.numRuntimeErrorTestSuites);

function describe(what, message) {
  const lines = stripVTControlCharacters(message).split('\n').slice(0, MESSAGE_LINES);
  return `== FAILED ${what}\n${lines.map((line) => `    ${line}\n`).join('')}`;
}
