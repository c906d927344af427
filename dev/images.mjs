#!/usr/bin/env node
/**
 * Which container images the Dockerfile and the Compose file name, and whether each is pinned to a digest,
 * as `name:tag@sha256:…`: a tag may mean other bytes tomorrow, a digest never.
 *
 * --write      ask the registries, by `docker buildx imagetools inspect`, and pin what is not pinned
 * --update     the same, and also replace the digests of before by those of today
 * --release    fail while an image is not pinned: before a release
 */
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
/** Where images of others are named; the service's own image is built here. */
const PLACES = [
  ['Dockerfile', /^(?<before>ARG NODE_IMAGE=)(?<image>\S+)$/gm],
  ['docker-compose.yml', /^(?<before> +image: )(?!galaxy-notify:)(?<image>\S+)$/gm],
];
const DIGEST = /^sha256:[0-9a-f]{64}$/;

const { values: options } = parseArgs({
  options: {
    write: { type: 'boolean', default: false },
    update: { type: 'boolean', default: false },
    release: { type: 'boolean', default: false },
  },
});

if (options.write || options.update) pin();
const images = named();
const open = images.filter(({ digest }) => digest === undefined);
for (const { file, image, digest } of images) {
  console.log(`${digest === undefined ? 'by tag   ' : 'by digest'}  ${file}: ${image}`);
}
if (open.length > 0) console.log(`${open.length} of ${images.length} images are not pinned to a digest`);
if (options.release && open.length > 0) process.exitCode = 1;

/** @returns each image with its file; `digest` is undefined while it is named by its tag alone. */
function named() {
  return PLACES.flatMap(([file, pattern]) =>
    [...readFileSync(path.join(root, file), 'utf8').matchAll(pattern)].map(({ groups: { image } }) => {
      const [tagged, digest] = image.split('@');
      return { file, image: tagged, digest };
    }),
  );
}

function pin() {
  for (const [file, pattern] of PLACES) {
    const place = path.join(root, file);
    const changed = readFileSync(place, 'utf8').replace(pattern, (line, before, image) => {
      const [tagged, digest] = image.split('@');
      return digest !== undefined && !options.update ? line : `${before}${tagged}@${digestOf(tagged)}`;
    });
    writeFileSync(place, changed);
  }
}

/** Of the index of all platforms, so that one digest serves each of them. Ends the program when it cannot be had. */
function digestOf(image) {
  const { error, status, stdout, stderr } = spawnSync(
    'docker',
    ['buildx', 'imagetools', 'inspect', image, '--format', '{{.Manifest.Digest}}'],
    { encoding: 'utf8' },
  );
  const digest = stdout?.trim();
  if (status === 0 && DIGEST.test(digest)) return digest;
  const reason = error?.message ?? (stderr.trim() || `it says ${JSON.stringify(digest)}`);
  console.error(`${image}: its digest could not be had: ${reason}`);
  process.exit(1);
}
