/**
 * Programs of others that tests and checks run, built with Go from the module proxy, once, into the cache folder.
 *
 *   node dev/go-programs.ts [--no-build] helm promtool     prints the path of each, and builds what is missing
 */
import { access, mkdir, mkdtemp, readFile, rename, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { report } from './program.ts';
import { runCommand } from './servers/command.ts';
import type { Report } from './servers/server-process.ts';

interface GoProgram {
  /** Its main package. */
  package: string;
  version: string;
  /**
   * The version under which the parts of its repository are separate modules. Its go.mod takes them from folders, which only
   * works within that repository.
   */
  partsVersion?: string;
  /** A variable that has its version; its makers set it when they link. */
  versionVariable?: string;
}

const KUBERNETES = {
  version: 'v1.34.0',
  partsVersion: 'v0.34.0',
  versionVariable: 'k8s.io/component-base/version.gitVersion',
};

export const GO_PROGRAMS = {
  helm: { package: 'helm.sh/helm/v3/cmd/helm', version: 'v3.18.6' },
  prometheus: { package: 'github.com/prometheus/prometheus/cmd/prometheus', version: 'v0.305.0' },
  'kube-apiserver': { package: 'k8s.io/kubernetes/cmd/kube-apiserver', ...KUBERNETES },
  'kube-controller-manager': { package: 'k8s.io/kubernetes/cmd/kube-controller-manager', ...KUBERNETES },
  'kube-scheduler': { package: 'k8s.io/kubernetes/cmd/kube-scheduler', ...KUBERNETES },
  kwok: { package: 'sigs.k8s.io/kwok/cmd/kwok', version: 'v0.7.0' },
  temporal: { package: 'github.com/temporalio/cli/cmd/temporal', version: 'v1.5.1' },
  'temporal-server': { package: 'go.temporal.io/server/cmd/server', version: 'v1.32.2' },
  'temporal-sql-tool': { package: 'go.temporal.io/server/cmd/tools/sql', version: 'v1.32.2' },
  promtool: { package: 'github.com/prometheus/prometheus/cmd/promtool', version: 'v0.305.0' },
} as const satisfies Record<string, GoProgram>;
export type GoProgramName = keyof typeof GO_PROGRAMS;

/** Versions of Temporal's server that the service is tried with. */
export const TEMPORAL_VERSIONS = ['1.29.1', '1.32.2'] as const;
export type TemporalVersion = (typeof TEMPORAL_VERSIONS)[number];

const CACHE = path.join(os.homedir(), '.cache', 'galaxy-notify', 'tools');
const PROGRESS_EVERY_MS = 15_000;
const VERSION_LIMIT_MS = 10_000;

/**
 * Finds a program in the cache, or builds it, which takes minutes.
 *
 * @returns its path.
 * @throws Error when it is not there and may not or cannot be built.
 */
export async function findGoProgram(
  name: GoProgramName,
  report: Report,
  { mayBuild = true } = {},
): Promise<string> {
  return find(name, GO_PROGRAMS[name], report, mayBuild);
}

/** The server of a cluster, and the tool that makes its schema. @throws Error as {@link findGoProgram}. */
export async function findTemporalPrograms(
  version: TemporalVersion,
  report: Report,
): Promise<{ server: string; sqlTool: string }> {
  const programOf = (name: 'temporal-server' | 'temporal-sql-tool') =>
    find(name, { ...GO_PROGRAMS[name], version: `v${version}` }, report, true);
  // One after the other: the second one has nearly all of the first one's packages.
  const server = await programOf('temporal-server');
  return { server, sqlTool: await programOf('temporal-sql-tool') };
}

async function find(name: string, wanted: GoProgram, report: Report, mayBuild: boolean): Promise<string> {
  const { version } = wanted;
  const folder = path.join(CACHE, `${name}-${version}`);
  const program = path.join(folder, name);
  const isThere = await access(program).then(
    () => true,
    () => false,
  );
  if (isThere) return program;
  if (!mayBuild) throw new Error(`${name} ${version} is not built yet`);
  await runCommand('go', ['version'], { timeoutMs: VERSION_LIMIT_MS });
  await mkdir(CACHE, { recursive: true });
  const draft = await mkdtemp(path.join(CACHE, 'incomplete-'));
  try {
    await build(path.join(draft, name), wanted, (seconds) =>
      report(`Building ${name} ${version} with Go (some minutes, once): ${seconds} s`),
    );
    await mkdir(folder, { recursive: true });
    await rename(path.join(draft, name), program);
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
  return program;
}

/** In a separate module: `go install` refuses modules with an `exclude`, as Prometheus's. */
async function build(
  output: string,
  { package: mainPackage, version, partsVersion, versionVariable }: GoProgram,
  progress: (seconds: number) => void,
): Promise<void> {
  const module = path.join(path.dirname(output), 'module');
  const startedAt = Date.now();
  const tell = () => progress(Math.round((Date.now() - startedAt) / 1_000));
  tell();
  const timer = setInterval(tell, PROGRESS_EVERY_MS);
  // What a module asks of Go is fetched with it.
  const go = (...args: string[]) =>
    runCommand('go', ['-C', module, ...args], { env: { GOTOOLCHAIN: 'auto', GOFLAGS: '-mod=mod' } });
  try {
    await mkdir(module, { recursive: true });
    await go('mod', 'init', 'tool');
    if (partsVersion !== undefined) {
      const [repository] = /^[^/]+\/[^/]+/.exec(mainPackage)!;
      const found = await go('mod', 'download', '-json', `${repository}@${version}`);
      const { GoMod: file } = JSON.parse(found) as { GoMod: string };
      const parts = [...(await readFile(file, 'utf8')).matchAll(/^\s*(\S+) => \.\//gm)].map(
        ([, part]) => part!,
      );
      await go('mod', 'edit', ...parts.map((part) => `-replace=${part}=${part}@${partsVersion}`));
    }
    await go('get', `${mainPackage}@${version}`);
    const named = versionVariable === undefined ? '' : ` -X ${versionVariable}=${version}`;
    await go('build', '-trimpath', `-ldflags=-s -w${named}`, '-o', output, mainPackage);
  } finally {
    clearInterval(timer);
  }
}

if (import.meta.main) {
  const { values, positionals } = parseArgs({
    options: { 'no-build': { type: 'boolean', default: false } },
    allowPositionals: true,
  });
  const mayBuild = !values['no-build'];
  try {
    for (const name of positionals) {
      if (!(name in GO_PROGRAMS))
        throw new Error(`${name} is not one of ${Object.keys(GO_PROGRAMS).join(', ')}`);
      process.stdout.write(`${await findGoProgram(name as GoProgramName, report, { mayBuild })}\n`);
    }
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n`);
    process.exitCode = 1;
  }
}
