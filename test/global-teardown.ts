import { rmSync } from 'node:fs';

export default async function globalTeardown(): Promise<void> {
  if (!globalThis.stackOfThisRun) return;
  await globalThis.stackOfThisRun.pooler?.stop();
  await globalThis.stackOfThisRun.stack.stop();
  rmSync(globalThis.stackOfThisRun.dataDir, { recursive: true, force: true });
}
