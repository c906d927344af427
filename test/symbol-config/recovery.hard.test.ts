/** The service as a process that is killed in the middle of its work: whatever it was doing is done in the end. */
import { registerTargets } from '../../activities/symbol-config/targets.ts';
import { fleetOfEachTest } from '../service-process.ts';
import { eventually } from '../harness.ts';
import { registryOfTests } from './registry.ts';
import { scratchFolder } from '../scratch.ts';

const registry = registryOfTests();
const fleet = fleetOfEachTest(() => registry.slot);
const scratch = scratchFolder('recovery');
let env: Record<string, string>;

beforeAll(() => {
  const file = scratch.write('targets.json', JSON.stringify(registry.targets.targets));
  env = {
    NOTIFICATION_ROLES: 'symbol-config',
    NOTIFICATION_SYMBOL_TARGETS_FILE: file,
    NOTIFICATION_HTTP_TIMEOUT: '5m',
    NOTIFICATION_SYMBOL_RETRY_LADDER: '200ms,400ms,1h',
  };
});

test('S1 S3 S5 a service that is killed in a round, or between rounds, converges after its restart', async () => {
  const { targets } = registry;
  const first = await fleet.start(env);
  await registry.write(['BTC', 'ETH']);
  await registry.tell();
  const { version } = await registry.settled();

  // In the middle of a round: three targets have not answered yet.
  const hanging = ['us-east-collector', 'us-east-alert-1', 'sa-east-alert-10'];
  for (const target of hanging) targets.fail({ target, failure: { kind: 'hang' } });
  await registry.write(['SOL']);
  await registry.tell();
  await eventually('all but three to have it', async () => {
    const has = targets.targets.filter(({ name }) => targets.held(name).version === version + 1);
    return has.length === 74;
  });
  await first.end('SIGKILL');
  targets.heal();
  const second = await fleet.start(env);
  expect(await registry.settled(60_000)).toMatchObject({ version: version + 1 });

  // Between rounds: the ladder has an hour to go.
  targets.fail({ target: 'us-west-alert-1', failure: { kind: 'status', status: 500 } });
  await registry.tell();
  const failures = async () =>
    (await registry.rows()).find(({ target }) => target === 'us-west-alert-1')!.consecutive_failures;
  const waiting = await eventually('the third failure', async () => {
    if ((await failures()) < 3) return undefined;
    const state = await registry.status();
    return state.alarm && state;
  });
  await second.end('SIGKILL');
  await registry.write(['LINK']);
  const third = await fleet.start(env);
  expect(await registry.status()).toMatchObject({
    failedTargets: ['us-west-alert-1'],
    alarm: waiting.alarm,
  });

  targets.heal();
  await registry.tell();
  expect(await registry.settled()).toMatchObject({ version: version + 2 });
  expect(await third.end('SIGTERM')).toBe(0);
}, 180_000);

test('S1 targets that are new in the file are told at the start, those that are gone are forgotten', async () => {
  const [gone, ...rest] = registry.targets.targets;
  const renamed = { ...gone!, name: 'renamed-collector' };
  const file = scratch.write('changed.json', JSON.stringify([...rest, renamed]));
  await fleet.start({ ...env, NOTIFICATION_SYMBOL_TARGETS_FILE: file });
  await eventually('the new target to have acknowledged', async () => {
    const rows = await registry.rows();
    const isTold = rows.find(({ target }) => target === renamed.name)?.acknowledged_version;
    return isTold && rows.length === 77 && !rows.some(({ target }) => target === gone!.name);
  });
}, 120_000);

test('S1 targets that a process registered and died before it told of them are told by the next', async () => {
  const service = await fleet.start(env);
  await registry.settled();
  await service.end('SIGKILL');
  // What a process does first when it starts; to be changed makes a target new.
  const { targets } = registry.targets;
  const [first, ...rest] = targets;
  await registerTargets(registry.slot.db, [{ ...first!, geo: 'elsewhere' }, ...rest]);
  await registerTargets(registry.slot.db, targets);

  await fleet.start(env);
  await eventually('the new target to have acknowledged', async () => {
    const rows = await registry.rows();
    return rows.find(({ target }) => target === first!.name)?.acknowledged_version;
  });
}, 120_000);
