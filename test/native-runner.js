/**
 * Runs a test file as Jest does, but lets Node load it: Jest's own loader would load the whole service again for every file,
 * while Node keeps what one file has loaded for the next one of the same worker, and reads TypeScript without a build.
 * Modules cannot be mocked that way; no test mocks what is available.
 */
import { pathToFileURL } from 'node:url';
import process from 'node:process';
import circus from 'jest-circus/runner';

/** What `expect.any` compares with; Jest would have others, in its own realm. */
const BUILT_IN = { Array, BigInt, Boolean, Date, Error, Function, Map, Number, Object, Set, String, Symbol };

export default async function run(globalConfig, config, environment, runtime, testPath, ...rest) {
  const jestConsole = environment.global.console;
  const nodeConsole = globalThis.console;
  const { variables = {}, testNamePattern } = config.globals.way ?? {};
  const before = Object.keys(variables).map((name) => [name, process.env[name]]);
  Object.assign(process.env, variables);
  Object.assign(environment.global, BUILT_IN);
  runtime.unstable_shouldLoadAsEsm = () => true;
  runtime.unstable_importModule = async (file) => {
    Object.assign(globalThis, runtime.requireModuleOrMock(testPath, '@jest/globals'), {
      console: jestConsole,
    });
    const url = pathToFileURL(file);
    // Each project loads the file itself, also in a worker that has run it for another project.
    url.searchParams.set('project', config.displayName?.name ?? '');
    await import(url.href);
  };
  try {
    const options = { ...globalConfig, testNamePattern: both(testNamePattern, globalConfig.testNamePattern) };
    return await circus.default(options, config, environment, runtime, testPath, ...rest);
  } finally {
    globalThis.console = nodeConsole;
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    // What a file has replaced in a shared module must not reach the next one.
    environment.moduleMocker.restoreAllMocks();
  }
}

/** A pattern of titles that match both, where there are two. */
function both(one, other) {
  return one && other ? `^(?=.*(?:${one}))(?=.*(?:${other}))` : (one ?? other);
}
