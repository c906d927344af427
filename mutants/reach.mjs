/**
 * Notes which tests send which statements and scripts, for `npm run test:mutants -- --propose`:
 * `REACH=FILE NODE_OPTIONS='--import ./mutants/reach.mjs' npx jest --selectProjects service`
 */
import { createHash } from 'node:crypto';
import { appendFileSync } from 'node:fs';
import process from 'node:process';
import { Pipeline, Redis } from 'ioredis';
import pg from 'pg';

const file = process.env.REACH;
const noted = new Set();
const scripts = new Map();
const sha1 = (text) => createHash('sha1').update(text).digest('hex');

/** Outside of a test process there is no test to name. */
function note(text) {
  const { testPath, currentTestName } = globalThis.expect?.getState() ?? {};
  if (testPath === undefined || text === undefined) return;
  const line = JSON.stringify({ file: testPath, test: currentTestName, text });
  const key = sha1(line);
  if (noted.has(key)) return;
  noted.add(key);
  appendFileSync(file, `${line}\n`);
}

/** @param noteCall is given what the method is given. */
function before(prototype, name, noteCall) {
  const method = prototype[name];
  prototype[name] = function (...args) {
    noteCall(...args);
    return method.apply(this, args);
  };
}

before(pg.Client.prototype, 'query', (query) => note(typeof query === 'string' ? query : query?.text));
before(Redis.prototype, 'defineCommand', (_, { lua }) => scripts.set(sha1(lua), lua));
for (const { prototype } of [Redis, Pipeline]) {
  before(prototype, 'sendCommand', ({ name, args }) => {
    if (name === 'eval') note(String(args[0]));
    if (name === 'evalsha') note(scripts.get(String(args[0])));
  });
}
