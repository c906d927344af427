/** Workflows that a test writes itself. */
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { WorkflowBundle } from '@temporalio/worker';
import { DefaultLogger } from '@temporalio/worker';
import { bundleWorkflowCode } from 'temporal-bundler';

const ROOT = path.resolve(import.meta.dirname, '..');

/**
 * Bundles a file `workflows.ts` with this source, evaluated once for each thread like our own. A second call takes the
 * bundle from the cache.
 */
export async function bundleOf(source: string): Promise<WorkflowBundle> {
  const lock = readFileSync(path.join(ROOT, 'package-lock.json'));
  const hash = createHash('sha256').update(lock).update(source).digest('hex').slice(0, 16);
  const cached = path.join(ROOT, 'node_modules', '.cache', 'galaxy-notify', `test-${hash}.js`);
  if (existsSync(cached)) return { code: readFileSync(cached, 'utf8') };
  const home = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-workflows-'));
  try {
    symlinkSync(path.join(ROOT, 'node_modules'), path.join(home, 'node_modules'));
    const workflowsPath = path.join(home, 'workflows.ts');
    writeFileSync(workflowsPath, source);
    const bundle = await bundleWorkflowCode({
      workflowsPath,
      preloadModules: ['@temporalio/workflow', workflowsPath],
      logger: new DefaultLogger('WARN'),
    });
    writeFileSync(cached, bundle.code);
    return bundle;
  } finally {
    rmSync(home, { recursive: true });
  }
}
