/** That every scenario of the subscription lifecycle is tried: titles of tests carry their numbers. */
import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';

/** What each is about, by its number in the design of the lifecycle. */
const SCENARIOS: Record<number, string> = {
  1: 'a token is registered, verified, checked and deleted',
  2: 'a token is registered twice before it is verified',
  3: 'two agents have the same device',
  4: 'the notification router restarts between registration and verification',
  5: 'a token is verified on its router, and not known to be here',
  6: 'a restart without verification',
  7: 'of two notification routers, the one that was not chosen is down',
  8: 'another list of notification routers under an active token',
  9: 'a notification router calls a token invalid',
  10: 'the self-test of a notification router',
  11: 'a connection first, then the token; notifications switched off; routers of several versions',
  12: 'the tokens first, then connections; messages each way',
  13: 'INSTANT, PERIODIC, INSTANT, deleted, registered again',
  14: 'another device takes the token over',
  15: 'the notification router restarts, and is down while a message arrives',
  16: 'messaging routers restart, with one connection and with fifty',
  17: 'a connection is replaced, with its queue',
  18: 'a token that is taken over stays on its router; a new connection',
  19: 'a token that is made again is on the new router',
  20: 'wrong commands',
  21: 'from registration to pushes, with messaging routers going and coming',
  22: 'who may subscribe',
  23: 'notifiers that are replaced, taken over and deleted',
  24: 'the partition of create commands',
  25: 'commands without an open gate',
  26: 'of five creates two succeed, one is refused, two time out',
  28: 'checks that are due later',
  30: 'every status that a check can answer',
  31: 'more rows than one batch takes, and two servers',
  34: 'old records',
  36: 'the deletion of a token survives a restart',
  40: 'the choice of a router, and closing during a batch',
};

const TITLES = readdirSync(import.meta.dirname, { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.test.ts'))
  .map((file) => readFileSync(path.join(import.meta.dirname, file), 'utf8'))
  .flatMap((source) => [...source.matchAll(/(?<=['"`])(?:[A-Z]\d+ )+scenario (\d+)\b/g)])
  .map(([, number]) => Number(number));

test.each(Object.entries(SCENARIOS))('N17 number %s, %s, is tried', (number) => {
  expect(TITLES).toContain(Number(number));
});

test('N17 no title has the number of no scenario', () => {
  expect(TITLES.filter((number) => SCENARIOS[number] === undefined)).toEqual([]);
});
