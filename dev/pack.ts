/**
 * `npm run pack -- FOLDER [npm] [python]`: the packages of a release, in FOLDER; prints the path of each file.
 *
 * - npm: `galaxy-notify` for producers and receivers, `galaxy-notify-operator` with the command line and its library. Node strips no
 *   types inside node_modules, so both hold JavaScript with declarations.
 * - python: the wheel and the source archive of clients/python, built and checked in a separate environment.
 *
 * The Go module is a folder of the repository: its release is the tag `clients/go/v<version>`. Go takes the license from the top.
 */
import {
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { builtinModules } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { runProgram } from './program.ts';
import { runCommand } from './servers/command.ts';

const ROOT = path.dirname(import.meta.dirname);
/** Versions of the tools that build and check the Python package. */
const PYTHON_TOOLS = ['build==1.6.1', 'twine==7.0.0'];

interface Manifest {
  version: string;
  license: string;
  repository: { type: string; url: string };
  engines: Record<string, string>;
  dependencies: Record<string, string>;
  devDependencies: Record<string, string>;
}

interface NpmPackage {
  description: string;
  /** Paths of the package, and the modules behind them. */
  exports: Record<string, string>;
  bin?: Record<string, string>;
  /** Modules that are loaded by their path. */
  hidden?: string[];
  /** Files that the code reads, or that others read. */
  assets: string[];
}

const NPM_PACKAGES: Record<string, NpmPackage> = {
  'galaxy-notify': {
    description: 'Publish notification intents to galaxy-notify, hear what became of them, receive its calls',
    exports: {
      '.': 'client/notificationintent',
      './outcomes': 'client/outcomes',
      './testing': 'client/testing',
      './outbox': 'client/outbox',
      './account-callback/inputs': 'client/account-callback/inputs',
      './account-callback/receiver': 'client/account-callback/receiver',
      './symbol-config/receiver': 'client/symbol-config/receiver',
    },
    assets: ['client/outbox.sql'],
  },
  'galaxy-notify-operator': {
    description: 'The command line galaxy-notify, and its library: look into galaxy-notify and steer it',
    exports: { '.': 'client/operator', './connect': 'client/connect' },
    bin: { 'galaxy-notify': 'cli/main' },
    hidden: ['api/failure-converter'],
    assets: [
      'client/outbox.sql',
      'catalog/galaxy.yaml',
      'catalog/shop.yaml',
      ...readdirSync(path.join(ROOT, 'migrations'))
        .filter((file) => file.endsWith('.sql'))
        .map((file) => `migrations/${file}`),
    ],
  },
};

/** Clients that a producer passes in, and their oldest release. The package installs none of them. */
const PASSED_IN: Record<string, string> = { ioredis: '>=5', pg: '>=8', '@opentelemetry/api': '>=1.9' };

const readManifest = () => JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8')) as Manifest;

/** Copies the page of a folder. Registries know no other page: links to others lead into the repository, at the tag of the release. */
function copyReadme(from: string, to: string): void {
  const { repository, version } = readManifest();
  const tree = `${repository.url.replace(/^git\+|\.git$/g, '')}/blob/v${version}/`;
  const page = readFileSync(path.join(ROOT, from, 'README.md'), 'utf8');
  const target = (link: string): string => tree + path.posix.join(from, link);
  writeFileSync(
    path.join(to, 'README.md'),
    page.replace(/\]\((\.\.\/[^)]*)\)/g, (_, link: string) => `](${target(link)})`),
  );
}

/** Compiles `client/` and `cli/` into `dist`. The compiler leaves the endings of imports in declarations, so they are rewritten. */
async function compileClients(dist: string): Promise<void> {
  const tsc = path.join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc');
  const config = path.join(ROOT, 'client', 'tsconfig.pack.json');
  await runCommand(process.execPath, [tsc, '-p', config, '--outDir', dist]);
}

/** The modules behind a package's entries, without ending, and the other packages that they import. */
function importsOf(dist: string, entries: readonly string[], ending: '.js' | '.d.ts') {
  const modules = new Set(entries);
  const packages = new Set<string>();
  for (const module of modules) {
    const text = readFileSync(path.join(dist, `${module}${ending}`), 'utf8');
    for (const [, name] of text.matchAll(/(?:from |import |import\()['"]([\w@./:-]+)['"]/g)) {
      if (name!.endsWith('.json')) continue;
      if (name!.startsWith('.')) {
        modules.add(path.join(path.dirname(module), name!.replace(/\.[jt]s$/, '')));
      } else if (!name!.startsWith('node:') && !builtinModules.includes(name!)) {
        packages.add(/^(@[^/]+\/)?[^/]+/.exec(name!)![0]);
      }
    }
  }
  return { modules, packages };
}

/** @returns the path of the packed file. */
async function packNpm(name: string, dist: string, folder: string, destination: string): Promise<string> {
  const { description, exports, bin = {}, hidden = [], assets } = NPM_PACKAGES[name]!;
  const { version, license, repository, engines, dependencies, devDependencies } = readManifest();
  const entries = [...Object.values(exports), ...Object.values(bin), ...hidden];
  const code = importsOf(dist, entries, '.js');
  const types = importsOf(dist, entries, '.d.ts');
  for (const [modules, ending] of [
    [code.modules, '.js'],
    [types.modules, '.d.ts'],
  ] as const) {
    for (const module of modules) {
      const file = path.join(folder, 'dist', `${module}${ending}`);
      mkdirSync(path.dirname(file), { recursive: true });
      const text = readFileSync(path.join(dist, `${module}${ending}`), 'utf8');
      const isProgram = ending === '.js' && Object.values(bin).includes(module);
      const head = isProgram ? '#!/usr/bin/env node\n' : '';
      writeFileSync(file, head + text.replace(/(from |import\()(['"]\.[^'"]*)\.ts(['"])/g, '$1$2.js$3'));
    }
  }
  const ranges: Record<string, string> = { ...devDependencies, ...dependencies };
  const needed = [...code.packages].flatMap((one) => [one, `@types/${one}`].filter((each) => each in ranges));
  const passedIn = [...types.packages].filter((one) => !code.packages.has(one)).sort();
  const unknown = [...code.packages, ...passedIn].filter((one) => !(one in ranges || one in PASSED_IN));
  if (unknown.length > 0)
    throw new Error(`${name} imports ${unknown.join(', ')}, without a range of versions`);
  const pathsOf = (module: string) => ({ types: `./dist/${module}.d.ts`, default: `./dist/${module}.js` });
  const packed = {
    ...{ name, version, description, license, repository, engines, type: 'module' },
    sideEffects: false,
    exports: {
      ...Object.fromEntries(Object.entries(exports).map(([as, module]) => [as, pathsOf(module)])),
      ...(name === 'galaxy-notify' ? { './outbox.sql': './dist/client/outbox.sql' } : {}),
    },
    bin: Object.fromEntries(Object.entries(bin).map(([as, module]) => [as, `dist/${module}.js`])),
    files: ['dist', 'examples'],
    dependencies: Object.fromEntries(needed.sort().map((one) => [one, ranges[one]])),
    peerDependencies: Object.fromEntries(passedIn.map((one) => [one, PASSED_IN[one]])),
    peerDependenciesMeta: Object.fromEntries(passedIn.map((one) => [one, { optional: true }])),
  };
  writeFileSync(path.join(folder, 'package.json'), `${JSON.stringify(packed, null, 2)}\n`);
  // The command line reads its version there.
  const versionFile = path.join(folder, 'dist', 'package.json');
  if (Object.keys(bin).length > 0)
    writeFileSync(versionFile, `${JSON.stringify({ version, type: 'module' })}\n`);
  for (const asset of assets) cpSync(path.join(ROOT, asset), path.join(folder, 'dist', asset));
  copyFileSync(path.join(ROOT, 'LICENSE'), path.join(folder, 'LICENSE'));
  copyReadme('client', folder);
  if (name === 'galaxy-notify')
    cpSync(path.join(ROOT, 'client', 'examples'), path.join(folder, 'examples'), { recursive: true });
  await runCommand('npm', ['pack', '--silent', folder, '--pack-destination', destination]);
  return path.join(destination, `${name}-${version}.tgz`);
}

/** @returns the paths of the wheel and the source archive, which `twine check --strict` has accepted. */
async function packPython(folder: string, destination: string): Promise<string[]> {
  const source = path.join(folder, 'source');
  // setuptools writes beside the sources.
  cpSync(path.join(ROOT, 'clients', 'python'), source, { recursive: true });
  copyReadme('clients/python', source);
  copyFileSync(path.join(ROOT, 'LICENSE'), path.join(source, 'LICENSE'));
  const python = path.join(folder, 'environment', 'bin', 'python');
  await runCommand('python3', ['-m', 'venv', path.join(folder, 'environment')]);
  await runCommand(python, [
    ...['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', ...PYTHON_TOOLS],
  ]);
  await runCommand(python, ['-m', 'build', '--outdir', destination, source]);
  const { version } = readManifest();
  const files = [`galaxy_notify-${version}-py3-none-any.whl`, `galaxy_notify-${version}.tar.gz`];
  const built = files.map((file) => path.join(destination, file));
  await runCommand(python, ['-m', 'twine', 'check', '--strict', ...built]);
  return built;
}

if (import.meta.main) {
  await runProgram(async () => {
    const [given, ...what] = process.argv.slice(2);
    if (given === undefined) throw new Error('which folder? npm run pack -- FOLDER [npm] [python]');
    const destination = path.resolve(given);
    mkdirSync(destination, { recursive: true });
    const folder = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-pack-'));
    const isAsked = (kind: string) => what.length === 0 || what.includes(kind);
    try {
      if (isAsked('npm')) {
        const dist = path.join(folder, 'dist');
        await compileClients(dist);
        for (const name of Object.keys(NPM_PACKAGES)) {
          const own = path.join(folder, name);
          mkdirSync(own);
          process.stdout.write(`${await packNpm(name, dist, own, destination)}\n`);
        }
      }
      if (isAsked('python'))
        process.stdout.write(`${(await packPython(path.join(folder, 'python'), destination)).join('\n')}\n`);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
    return true;
  });
}
