import stopServers from './global-teardown.ts';

export default async function tearDown(): Promise<void> {
  await globalThis.poolerOfThisRun?.stop();
  await stopServers();
}
