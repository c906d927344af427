/** The workflows' one bundle, built once per state of the source and kept for the next start. */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readFile, readdir, rename, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { bundleWorkflowCode } from 'temporal-bundler';
import { SelfExplanatoryError } from '../api/errors.ts';
import { FAILURE_CONVERTER } from '../api/payload-codec.ts';

const ROOT = path.dirname(import.meta.dirname);
const CACHE = path.join(ROOT, 'node_modules', '.cache', 'galaxy-notify');

const WORKFLOWS = path.join(ROOT, 'workflows', 'index.ts');
const TRACE_CONTEXT = path.join(ROOT, 'workflows', 'trace-context.ts');

/**
 * Evaluated once for each thread instead of once for each execution, and frozen then: most of what a worker did for a
 * short workflow was to load the same modules again. Lint keeps state out of them.
 */
const PRELOADED = ['@temporalio/workflow', WORKFLOWS, TRACE_CONTEXT];

interface BundleOptions {
  /** Failures keep their messages in payloads (failure-converter.ts). */
  encodesFailures?: boolean;
  /** Called when there is no bundle for this source yet, which takes a few seconds. */
  onBuild?: () => void;
}

/**
 * @returns where the bundle lies.
 * @throws SelfExplanatoryError when no bundle of these sources exists and the compiler is not installed: production has
 * neither webpack nor swc, and gets the bundle with the sources.
 */
export async function workflowBundle({ encodesFailures, onBuild }: BundleOptions = {}): Promise<{
  codePath: string;
}> {
  const name = encodesFailures ? 'workflows-encoded' : 'workflows';
  const codePath = path.join(CACHE, `${name}-${await sourceHash()}.js`);
  if (existsSync(codePath)) return { codePath };
  const bundleWorkflowCode = await findBundler(codePath);
  onBuild?.();
  const { code } = await bundleWorkflowCode({
    workflowsPath: WORKFLOWS,
    preloadModules: PRELOADED,
    ...(encodesFailures ? { failureConverterPath: FAILURE_CONVERTER } : {}),
    workflowInterceptorModules: [TRACE_CONTEXT],
    logger: quiet,
  });
  await mkdir(CACHE, { recursive: true });
  // Renamed into place: another process that starts at the same time never sees half a bundle.
  const unfinished = `${codePath}.${process.pid}`;
  await writeFile(unfinished, code);
  await rename(unfinished, codePath);
  return { codePath };
}

/**
 * The SDK's own bundler. It comes a second time, as a package of development: the SDK that production installs lacks
 * what the bundler needs (`overrides` in package.json).
 */
async function findBundler(codePath: string): Promise<typeof bundleWorkflowCode> {
  try {
    return (await import('temporal-bundler')).bundleWorkflowCode;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error;
    throw new SelfExplanatoryError(
      `there is no bundle of these workflows (${path.relative(ROOT, codePath)}), and the packages that make one are not ` +
        'installed: make it where they are, as the Dockerfile does, and bring it along',
    );
  }
}

/** Everything the bundle is made of: our workflows, the locked versions of the packages they use, and how it is made. */
async function sourceHash(): Promise<string> {
  const folder = path.join(ROOT, 'workflows');
  const sources = (await readdir(folder, { recursive: true })).filter((file) => file.endsWith('.ts')).sort();
  const files = [
    ...sources.map((file) => path.join(folder, file)),
    path.join(ROOT, 'package-lock.json'),
    import.meta.filename,
  ];
  const hash = createHash('sha256');
  for (const file of files) hash.update(`${path.relative(ROOT, file)}\0`).update(await readFile(file));
  return hash.digest('hex').slice(0, 16);
}

const silent = (): void => undefined;
const quiet = { log: silent, trace: silent, debug: silent, info: silent, warn: silent, error: silent };
