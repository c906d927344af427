#!/usr/bin/env node
/**
 * `npm run audit`: fails when a package that production uses has a known vulnerability of severity high or critical.
 * Not every registry knows about vulnerabilities; one that does not, or is out of reach, is said and fails nothing.
 */
import { spawnSync } from 'node:child_process';

const { stdout } = spawnSync('npm', ['audit', '--omit=dev', '--json'], { encoding: 'utf8' });
const { metadata, vulnerabilities = {}, message } = parsed(stdout);

if (metadata === undefined) {
  console.log(`Not audited: ${message ?? 'the registry gave no answer'}`);
} else {
  const serious = Object.values(vulnerabilities).filter(({ severity }) =>
    ['high', 'critical'].includes(severity),
  );
  for (const { name, severity, range } of serious) console.log(`${severity}: ${name} ${range}`);
  console.log(`${metadata.dependencies.prod} packages audited, ${serious.length} to be replaced`);
  process.exitCode = serious.length === 0 ? 0 : 1;
}

/** What npm says, as far as it says anything. */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}
