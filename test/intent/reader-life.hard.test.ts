/** Two processes, one of which reads: it dies, or stands still for a while, and the other one takes over by its sign of life. */
import { readerKey } from '../../api/intent/stream.ts';
import { describe as describeWorkflow } from '../../activities/workflows.ts';
import { bridgeWorkflowId } from '../../workflows/intent/reader-contract.ts';
import { RENEW_SIGNAL } from '../../workflows/renewal-contract.ts';
import type { Slot } from '../harness.ts';
import { eventually, operatorOf, takeSlot } from '../harness.ts';
import type { ServiceProcess } from '../service-process.ts';
import { allPublished, createFleet, deliveriesTo, outboundIds } from '../service-process.ts';
import { publishTurn } from './entries.ts';

const INTENTS = 'notification:intents';
const LIMIT_MS = 120_000;
/** Temporal notices by itself after two minutes without a heartbeat. */
const WELL_BEFORE_TEMPORAL_MS = 60_000;
const TEST_LIMIT_MS = 3 * LIMIT_MS;

let slot: Slot;
let fleet: ReturnType<typeof createFleet>;
beforeEach(async () => {
  slot = await takeSlot();
  fleet = createFleet(slot);
});
afterEach(async () => {
  await fleet.killAll();
  await slot.release();
});

const says = ({ lines }: ServiceProcess, text: string) => lines.some(({ msg }) => msg === text);
const untilSaid = (service: ServiceProcess, text: string, limitMs = LIMIT_MS) =>
  eventually(`a process to say: ${text}`, async () => says(service, text), limitMs);

async function startPair(): Promise<{ reader: ServiceProcess; other: ServiceProcess }> {
  const reader = await fleet.start();
  await untilSaid(reader, 'stream reader started');
  return { reader, other: await fleet.start() };
}

test(
  'I36 a reader that is killed is noticed by another process, long before Temporal would notice',
  async () => {
    const { reader, other } = await startPair();
    await reader.end('SIGKILL');
    const id = await publishTurn(slot.redis, 'after-the-death');
    await untilSaid(other, 'reader shows no sign of life, another one begins');
    await untilSaid(other, 'stream reader started');
    await allPublished(slot, 2, LIMIT_MS);
    expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', [id]));
  },
  TEST_LIMIT_MS,
);

test(
  'I36 I51 a reader that is killed and then renewed is noticed as well, and the new run reads on',
  async () => {
    const reader = await fleet.start();
    await untilSaid(reader, 'stream reader started');
    await reader.end('SIGKILL');
    await slot.client.workflow.getHandle(bridgeWorkflowId(INTENTS)).signal(RENEW_SIGNAL);
    // It begins late enough for the reader to be cancelled before it is known to be dead.
    const other = await fleet.start();
    await untilSaid(other, 'stream reader started', WELL_BEFORE_TEMPORAL_MS);
    const id = await publishTurn(slot.redis, 'after-the-renewal');
    await allPublished(slot, 2, LIMIT_MS);
    expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', [id]));
  },
  TEST_LIMIT_MS,
);

test(
  'I36 I26 a reader that is killed can be paused: it does not stay about to pause',
  async () => {
    const { reader, other } = await startPair();
    await reader.end('SIGKILL');
    const { bridge } = operatorOf(slot);
    expect(await bridge.pause({ reason: 'a test', requestedBy: 'tester' })).toMatchObject({
      state: 'paused',
    });
    await publishTurn(slot.redis, 'while-paused');
    await bridge.resume({ requestedBy: 'tester' });
    await untilSaid(other, 'stream reader started', WELL_BEFORE_TEMPORAL_MS);
    await allPublished(slot, 2, LIMIT_MS);
  },
  TEST_LIMIT_MS,
);

test(
  'I36 a reader that stood still until another one began stops by itself, and nothing is read twice',
  async () => {
    const { reader, other } = await startPair();
    process.kill(reader.pid, 'SIGSTOP');
    await untilSaid(other, 'stream reader started');
    process.kill(reader.pid, 'SIGCONT');
    await untilSaid(reader, 'stream reader stopped');
    const id = await publishTurn(slot.redis, 'after-the-sleep');
    await allPublished(slot, 2, LIMIT_MS);
    expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', [id]));
    expect(says(other, 'stream reader stopped')).toBe(false);
  },
  TEST_LIMIT_MS,
);

test(
  'I36 a reader with nothing to report shows its sign and leaves Temporal alone',
  async () => {
    await fleet.start();
    const signs = async () => Number((await slot.redis.get(readerKey(INTENTS)))?.split(' ')[2] ?? 0);
    const heartbeat = async () => {
      const described = await describeWorkflow(slot.client.workflow, bridgeWorkflowId(INTENTS));
      return described?.raw.pendingActivities?.[0]?.lastHeartbeatTime;
    };
    // By then it has reported what the first look at the stream has found.
    await eventually('five signs', async () => (await signs()) >= 5, LIMIT_MS);
    const [before, count] = [await heartbeat(), await signs()];
    await eventually('four more signs', async () => (await signs()) >= count + 4, LIMIT_MS);
    expect(await heartbeat()).toEqual(before);
  },
  TEST_LIMIT_MS,
);
