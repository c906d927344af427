/** Workflows that a test writes itself. */
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { WorkflowBundle } from '@temporalio/worker';
import { DefaultLogger } from '@temporalio/worker';
import { bundleWorkflowCode } from 'temporal-bundler/lib/workflow/bundler.js';

const ROOT = path.resolve(import.meta.dirname, '..');

/** @returns the bundle of a file `workflows.ts` with this source, evaluated once for each thread like our own. */
export async function bundleOf(source: string): Promise<WorkflowBundle> {
  const home = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-workflows-'));
  try {
    symlinkSync(path.join(ROOT, 'node_modules'), path.join(home, 'node_modules'));
    const workflowsPath = path.join(home, 'workflows.ts');
    writeFileSync(workflowsPath, source);
    return await bundleWorkflowCode({
      workflowsPath,
      preloadModules: ['@temporalio/workflow', workflowsPath],
      logger: new DefaultLogger('WARN'),
    });
  } finally {
    rmSync(home, { recursive: true });
  }
}
