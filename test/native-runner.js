/**
 * Runs a test file as Jest does, but lets Node load it: Jest's own loader would load the whole service anew for every file,
 * while Node keeps what one file has loaded for the next one of the same worker, and reads TypeScript without a build.
 * Mocks of modules are not to be had that way; nothing here is mocked that can be had.
 */
import { pathToFileURL } from 'node:url';
import circus from 'jest-circus/runner';

/** What `expect.any` compares with; Jest would have others, in a realm of its own. */
const BUILT_IN = { Array, BigInt, Boolean, Date, Error, Function, Map, Number, Object, Set, String, Symbol };

export default async function run(globalConfig, config, environment, runtime, testPath, ...rest) {
  const jestConsole = environment.global.console;
  const nodeConsole = globalThis.console;
  Object.assign(environment.global, BUILT_IN);
  runtime.unstable_shouldLoadAsEsm = () => true;
  runtime.unstable_importModule = async (file) => {
    Object.assign(globalThis, runtime.requireModuleOrMock(testPath, '@jest/globals'), {
      console: jestConsole,
    });
    await import(pathToFileURL(file).href);
  };
  try {
    return await circus.default(globalConfig, config, environment, runtime, testPath, ...rest);
  } finally {
    globalThis.console = nodeConsole;
    // What a file has replaced in a shared module is not to reach the next one.
    environment.moduleMocker.restoreAllMocks();
  }
}
