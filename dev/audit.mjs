#!/usr/bin/env node
/**
 * `npm run audit`: whether packages that production uses have known vulnerabilities of severity high or critical.
 *
 * The registry is asked; where it does not know, or is out of reach, a snapshot of an earlier answer is read, which names
 * every version that it is about. Knowledge may be 7 days old. What is older, or absent for a version, is a warning here,
 * so that nothing turns red by itself with time; `--release` fails by it, since a release needs a current answer.
 *
 * --release          fail without knowledge of the last 7 days about every package
 * --snapshot FILE    where the snapshot is; default dev/advisories.json, which a mirror may provide
 * --write            ask the registry, and write what it answers into the snapshot
 * --json             print the result as JSON
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const DAY_MS = 86_400_000;
const MOST_DAYS = 7;
const SERIOUS = ['high', 'critical'];

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const { values: options } = parseArgs({
  options: {
    release: { type: 'boolean', default: false },
    snapshot: { type: 'string', default: path.join(root, 'dev', 'advisories.json') },
    write: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
  },
});

const wanted = productionPackages();
const asked = askRegistry();
if (options.write) {
  if (asked.knowledge === undefined) fail(`No snapshot written: ${asked.reason}`);
  writeFileSync(options.snapshot, `${JSON.stringify(asked.knowledge, null, 2)}\n`);
}
const { knowledge, source, gaps } = asked.knowledge
  ? { knowledge: asked.knowledge, source: 'the registry', gaps: [] }
  : fromSnapshot(asked.reason);

const serious = (knowledge?.vulnerabilities ?? []).filter(({ severity }) => SERIOUS.includes(severity));
const result = { source, takenAt: knowledge?.takenAt, packages: wanted.length, serious, gaps };
if (options.json) console.log(JSON.stringify(result, null, 2));
else print(result);
if (serious.length > 0 || (options.release && gaps.length > 0)) process.exitCode = 1;

function print({ serious, gaps, source, takenAt, packages }) {
  for (const { name, severity, range } of serious) console.log(`${severity}: ${name} ${range}`);
  for (const gap of gaps) console.log(`${options.release ? 'Not known' : 'Warning, not known'}: ${gap}`);
  if (source !== undefined) {
    console.log(
      `${packages} packages of production, by ${source} of ${takenAt}: ${serious.length} to be replaced`,
    );
  }
}

/** `name@version` of each package that an installation for production may have, of any platform. */
function productionPackages() {
  const { packages } = JSON.parse(readFileSync(path.join(root, 'package-lock.json'), 'utf8'));
  const named = Object.entries(packages).flatMap(([folder, { version, name, dev, resolved }]) => {
    // Production installs the optional half of `devOptional`; the package with the empty name is this repository.
    if (folder === '' || dev || resolved?.startsWith('file:')) return [];
    return [
      `${name ?? folder.slice(folder.lastIndexOf('node_modules/') + 'node_modules/'.length)}@${version}`,
    ];
  });
  return [...new Set(named)].sort();
}

/** @returns what the registry knows, or the reason why it says nothing. */
function askRegistry() {
  const { stdout } = spawnSync('npm', ['audit', '--omit=dev', '--json'], { cwd: root, encoding: 'utf8' });
  const { metadata, vulnerabilities = {}, message } = parsed(stdout);
  if (metadata === undefined) return { reason: message ?? 'the registry gave no answer' };
  return {
    knowledge: {
      takenAt: new Date().toISOString(),
      audited: wanted,
      vulnerabilities: Object.values(vulnerabilities).map(({ name, severity, range }) => ({
        ...{ name, severity, range },
      })),
    },
  };
}

/** @param reason why the registry was of no use. */
function fromSnapshot(reason) {
  if (!existsSync(options.snapshot)) return { gaps: [`${reason}; and there is no ${options.snapshot}`] };
  const knowledge = parsed(readFileSync(options.snapshot, 'utf8'));
  const takenAt = Date.parse(knowledge.takenAt);
  if (!Number.isFinite(takenAt) || !Array.isArray(knowledge.audited)) {
    return { gaps: [`${reason}; and ${options.snapshot} is no snapshot`] };
  }
  const days = (Date.now() - takenAt) / DAY_MS;
  const audited = new Set(knowledge.audited);
  const missing = wanted.filter((one) => !audited.has(one));
  const gaps = [
    ...(days > MOST_DAYS ? [`the snapshot is ${Math.floor(days)} days old; at most ${MOST_DAYS} count`] : []),
    ...(missing.length > 0 ? [`the snapshot says nothing of ${missing.join(', ')}`] : []),
  ];
  return { knowledge, source: 'the snapshot', gaps };
}

/** What a text says as JSON, as far as it says anything. */
function parsed(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

function fail(message) {
  console.error(message);
  process.exit(1);
}
