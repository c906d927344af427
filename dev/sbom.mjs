#!/usr/bin/env node
/**
 * `npm run tool -- dev/sbom.mjs`: what the image contains, as CycloneDX 1.5 in JSON on standard output: the packages of production by
 * package-lock.json with their hashes, of all platforms, and what they stand on: the base image with its Node, and the
 * packages of Debian that the Dockerfile adds. The image has no Temporal server; the native part of its SDK is in
 * `@temporalio/core-bridge`.
 *
 * Not `npm sbom`: of a lock file whose packages serve development as well, it leaves out more than a third.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const read = (file) => readFileSync(path.join(root, file), 'utf8');

const lock = read('package-lock.json');
const dockerfile = read('Dockerfile');
const { packages } = JSON.parse(lock);

/** Folder in node_modules and entry of the lock file, of what production installs; not of the empty package. */
const installed = Object.entries(packages).filter(
  ([folder, { dev, resolved }]) => folder !== '' && !dev && resolved !== 'file:dev/left-out.tgz',
);
const refs = new Map(installed.map(([folder, entry]) => [folder, purlOf(folder, entry)]));
const below = [...ofTheBase(), ...ofDebian()];
const { '': own } = packages;
const ownRef = `pkg:npm/${own.name}@${own.version}`;

const components = new Map(
  [...below, ...installed.map(([folder, entry]) => componentOf(folder, entry))].map((component) => [
    component['bom-ref'],
    component,
  ]),
);
const dependsOn = new Map([[ownRef, below.map((component) => component['bom-ref'])]]);
for (const [folder, entry] of [['', own], ...installed]) {
  const ref = refs.get(folder) ?? ownRef;
  const needed = { ...entry.dependencies, ...entry.optionalDependencies, ...entry.peerDependencies };
  const found = Object.keys(needed).flatMap((name) => refs.get(folderOf(name, folder)) ?? []);
  dependsOn.set(ref, [...new Set([...(dependsOn.get(ref) ?? []), ...found])].sort());
}

console.log(
  JSON.stringify(
    {
      $schema: 'http://cyclonedx.org/schema/bom-1.5.schema.json',
      bomFormat: 'CycloneDX',
      specVersion: '1.5',
      // The same for the same files, so that two documents can be compared.
      serialNumber: `urn:uuid:${uuidOf(lock + dockerfile)}`,
      version: 1,
      metadata: {
        lifecycles: [{ phase: 'pre-build' }],
        component: {
          'bom-ref': ownRef,
          type: 'application',
          name: own.name,
          version: own.version,
          purl: ownRef,
          licenses: [{ license: { id: own.license } }],
        },
      },
      components: [...components.values()],
      dependencies: [...dependsOn].map(([ref, others]) => ({ ref, dependsOn: others })),
    },
    null,
    2,
  ),
);

function nameOf(folder, { name }) {
  return name ?? folder.split('node_modules/').at(-1);
}

function purlOf(folder, entry) {
  return `pkg:npm/${nameOf(folder, entry).replace('@', '%40')}@${entry.version}`;
}

function componentOf(folder, entry) {
  const [algorithm, digest] = entry.integrity.split('-');
  return {
    'bom-ref': purlOf(folder, entry),
    type: 'library',
    name: nameOf(folder, entry),
    version: entry.version,
    scope: entry.optional ? 'optional' : 'required',
    hashes: [
      {
        alg: algorithm.toUpperCase().replace('SHA', 'SHA-'),
        content: Buffer.from(digest, 'base64').toString('hex'),
      },
    ],
    ...(typeof entry.license === 'string' ? { licenses: [{ expression: entry.license }] } : {}),
    purl: purlOf(folder, entry),
  };
}

/** Where Node finds a package that one in `folder` asks for: in its own folder, or in one around it. */
function folderOf(name, folder) {
  for (let place = folder; ; place = place.slice(0, Math.max(0, place.lastIndexOf('node_modules/') - 1))) {
    const candidate = place === '' ? `node_modules/${name}` : `${place}/node_modules/${name}`;
    if (place === '' || candidate in packages) return candidate;
  }
}

/** The base image, with its digest where it is pinned (dev/images.mjs), and the Node in it, as exactly as its tag says. */
function ofTheBase() {
  const [, name, tag, digest] = /^ARG NODE_IMAGE=([^:@\s]+):([^@\s]+)(?:@sha256:([0-9a-f]{64}))?$/m.exec(
    dockerfile,
  );
  const image = `pkg:docker/${name}@${digest === undefined ? tag : `sha256%3A${digest}`}`;
  const node = `pkg:generic/node@${tag.split('-')[0]}`;
  return [
    {
      'bom-ref': image,
      type: 'container',
      name,
      version: tag,
      purl: image,
      ...(digest === undefined ? {} : { hashes: [{ alg: 'SHA-256', content: digest }] }),
    },
    { 'bom-ref': node, type: 'platform', name: 'node', version: tag.split('-')[0], purl: node },
  ];
}

function ofDebian() {
  const [, names] = /apt-get install -y --no-install-recommends (.+?) *\\$/m.exec(dockerfile);
  return names.split(' ').map((name) => {
    const purl = `pkg:deb/debian/${name}`;
    return { 'bom-ref': purl, type: 'library', name, purl };
  });
}

/** A UUID (version 8) made of a text. */
function uuidOf(text) {
  const hex = createHash('sha256').update(text).digest('hex');
  return [
    hex.slice(0, 8),
    hex.slice(8, 12),
    `8${hex.slice(13, 16)}`,
    `a${hex.slice(17, 20)}`,
    hex.slice(20, 32),
  ].join('-');
}
