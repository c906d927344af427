/** Leaves the first failure of a run in a file. Jest's own `--json` writes none when a run ends with its first failure. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';

export default class FirstFailure {
  constructor({ rootDir }) {
    this.rootDir = rootDir;
  }

  onRunComplete(_, { numPassedTests, numFailedTests, testResults }) {
    const file = testResults.find(({ failureMessage }) => failureMessage);
    const result = {
      tests: numPassedTests + numFailedTests,
      failed: file?.testResults.find(({ status }) => status === 'failed')?.title,
      failedIn: file && path.relative(this.rootDir, file.testFilePath),
    };
    writeFileSync(path.join(this.rootDir, '.mutant.json'), JSON.stringify(result));
  }
}
