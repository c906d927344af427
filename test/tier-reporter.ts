/** The last lines of a run: how long each tier took, and which of its files took longest. */
import path from 'node:path';

/** What Jest tells a reporter about a file, as far as it is read here. Times are epoch ms. */
interface TestFile {
  path: string;
  context: { config: { rootDir: string; displayName?: { name: string } } };
}
interface FileResult {
  perfStats: { start: number; end: number };
  testResults: readonly unknown[];
}

const SLOWEST = 10;
/** A file below it is not worth a line, s. */
const NOTABLE_S = 0.5;

interface FileTime {
  file: string;
  tests: number;
  begin: number;
  end: number;
}

export default class TierReporter {
  private readonly tiers = new Map<string, FileTime[]>();

  onTestResult({ context, path: testPath }: TestFile, { perfStats, testResults }: FileResult): void {
    const { displayName, rootDir } = context.config;
    const tier = displayName?.name ?? 'other';
    const files = this.tiers.get(tier) ?? [];
    this.tiers.set(tier, files);
    files.push({
      file: path.relative(rootDir, testPath),
      tests: testResults.length,
      begin: perfStats.start,
      end: perfStats.end,
    });
  }

  onRunComplete(): void {
    const lines = [...this.tiers].flatMap(([tier, files]) => describeTier(tier, files));
    // Jest's own summary comes after all reporters.
    process.once('exit', () => process.stderr.write(`\n${lines.join('\n')}\n`));
  }

  /** No failure of a run comes from here. */
  getLastError(): undefined {
    return undefined;
  }
}

function describeTier(tier: string, files: FileTime[]): string[] {
  const tests = files.reduce((sum, file) => sum + file.tests, 0);
  const worked = files.reduce((sum, file) => sum + secondsOf(file), 0);
  const span = secondsOf({
    begin: Math.min(...files.map(({ begin }) => begin)),
    end: Math.max(...files.map(({ end }) => end)),
  });
  const slowest = files
    .toSorted((one, other) => secondsOf(other) - secondsOf(one))
    .slice(0, SLOWEST)
    .filter((file) => secondsOf(file) >= NOTABLE_S);
  return [
    `${tier}: ${tests} tests of ${files.length} files in ${span.toFixed(1)} s; the slowest, of ${worked.toFixed(1)} s in all files together:`,
    ...slowest.map((file) => `${secondsOf(file).toFixed(1).padStart(8)} s  ${file.file}`),
  ];
}

const secondsOf = ({ begin, end }: Pick<FileTime, 'begin' | 'end'>): number => (end - begin) / 1_000;
