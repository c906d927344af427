/**
 * `npm run pack:client`: the client package as a tarball. Node strips types of a checkout, but of nothing inside
 * node_modules, so what others install must be JavaScript with declarations beside it.
 *
 *   npm run pack:client               galaxy-notify-client-<version>.tgz here
 *   npm run pack:client -- <folder>   there
 *
 * What it exports is in `files` of client/tsconfig.pack.json, what it loads by path in `include`; its dependencies are those that the result imports, in the
 * versions of this project.
 */
import { spawnSync } from 'node:child_process';
import { copyFileSync, cpSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { builtinModules } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import process from 'node:process';

const ROOT = path.dirname(import.meta.dirname);
const CONFIG = path.join(ROOT, 'client', 'tsconfig.pack.json');
/** The package itself is the producer module; the others have paths of their own. */
const MAIN = 'notificationintent';

const json = (file) => JSON.parse(readFileSync(file, 'utf8'));

/** Ends with the output of a command that fails. */
function run(command, args, cwd) {
  const { status, stdout, stderr, error } = spawnSync(command, args, { cwd, encoding: 'utf8' });
  if (status === 0) return stdout;
  console.error(error?.message ?? `${stdout}${stderr}`);
  process.exit(1);
}

function filesIn(folder, extension) {
  return readdirSync(folder, { recursive: true })
    .filter((file) => file.endsWith(extension))
    .map((file) => path.join(folder, file));
}

/** Names of packages that the files import, for code or for types. */
function importedPackages(files) {
  const specifiers = files.flatMap((file) =>
    [...readFileSync(file, 'utf8').matchAll(/(?:from|import) ?\(?'([^'.\s][^'\s]*)'/g)].map(
      ([, name]) => name,
    ),
  );
  const packages = specifiers.map((name) =>
    name
      .split('/')
      .slice(0, name.startsWith('@') ? 2 : 1)
      .join('/'),
  );
  return [...new Set(packages)]
    .filter((name) => !name.startsWith('node:') && !builtinModules.includes(name))
    .sort();
}

function manifestOf(dist) {
  const { version, license, engines, dependencies, devDependencies } = json(path.join(ROOT, 'package.json'));
  const names = json(CONFIG).files.map((file) => file.replace(/\.ts$/, ''));
  const entry = (name) => ({ types: `./dist/client/${name}.d.ts`, default: `./dist/client/${name}.js` });
  const needed = importedPackages([...filesIn(dist, '.js'), ...filesIn(dist, '.d.ts')]);
  const types = needed.map((name) => `@types/${name}`).filter((name) => name in devDependencies);
  const rangeOf = (name) => {
    const range = dependencies[name] ?? devDependencies[name];
    if (range === undefined) throw new Error(`the client imports ${name}, which is no dependency`);
    return [name, range];
  };
  return {
    name: 'galaxy-notify-client',
    version,
    description: 'Publish notification intents, and look into and steer galaxy-notify',
    license,
    type: 'module',
    engines,
    exports: {
      ...Object.fromEntries(names.map((name) => [name === MAIN ? '.' : `./${name}`, entry(name)])),
      './outbox.sql': './dist/client/outbox.sql',
    },
    files: ['dist', 'examples'],
    dependencies: Object.fromEntries([...needed, ...types].map(rangeOf)),
  };
}

const destination = path.resolve(process.argv[2] ?? '.');
const folder = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-client-'));
try {
  const dist = path.join(folder, 'dist');
  const tsc = path.join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc');
  run(process.execPath, [tsc, '-p', CONFIG, '--outDir', dist], ROOT);
  // The compiler rewrites the imports of code, not those of declarations.
  for (const file of filesIn(dist, '.d.ts')) {
    const text = readFileSync(file, 'utf8');
    writeFileSync(file, text.replace(/(from |import\()(['"]\.[^'"]*)\.ts(['"])/g, '$1$2.js$3'));
  }
  // Read by the outbox module, which looks for it beside itself.
  copyFileSync(path.join(ROOT, 'client', 'outbox.sql'), path.join(dist, 'client', 'outbox.sql'));
  writeFileSync(path.join(folder, 'package.json'), `${JSON.stringify(manifestOf(dist), null, 2)}\n`);
  copyFileSync(path.join(ROOT, 'LICENSE'), path.join(folder, 'LICENSE'));
  copyFileSync(path.join(ROOT, 'client', 'README.md'), path.join(folder, 'README.md'));
  cpSync(path.join(ROOT, 'client', 'examples'), path.join(folder, 'examples'), { recursive: true });
  const [packed] = JSON.parse(run('npm', ['pack', '--json', '--pack-destination', destination], folder));
  console.log(path.join(destination, packed.filename));
} finally {
  rmSync(folder, { recursive: true, force: true });
}
