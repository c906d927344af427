/** Counters and gauges of subscriptions, as a collector receives them from the running service. */
import { eventually } from '../harness.ts';
import type { Collector } from '../otlp-collector.ts';
import { startCollector } from '../otlp-collector.ts';
import type { SubscriptionAgent } from './agent.ts';
import { takeSubscriptionAgent } from './agent.ts';

let agent: SubscriptionAgent;
let collector: Collector;
beforeAll(async () => {
  [agent, collector] = [await takeSubscriptionAgent({ smpVersion: 16 }), await startCollector()];
  await agent.start({ OTEL_EXPORTER_OTLP_ENDPOINT: `${collector.url}/`, OTEL_METRIC_EXPORT_INTERVAL: '250' });
  await agent.activateToken();
});
afterAll(async () => {
  await agent.release();
  await collector.stop();
});

/** A metric's points as `attribute values: count`. */
const pointsOf = (name: string): Record<string, number> =>
  Object.fromEntries(
    collector.latest(`notification.subscriptions.${name}`).map(({ attributes, value }) => [
      Object.entries(attributes)
        .map(([key, of]) => `${key}=${of}`)
        .sort()
        .join(' '),
      value,
    ]),
  );

test('N16 work by kind and result, commands, events; rows by status, what is due, given up and to be deleted', async () => {
  const [smp] = agent.routers.smp;
  const server = smp!.address;
  smp!.fail({ failure: { kind: 'error', code: 'QUOTA' }, subject: 'NKEY', times: 1 });
  smp!.fail({ failure: { kind: 'omit' }, subject: 'NKEY', times: 1 });
  const [givenUp] = await agent.create([{ userId: 1, server }]);
  await eventually('the refusal', async () => (await agent.events()).length === 1);
  expect(await agent.record(givenUp!)).toMatchObject({ smp_action: null });
  smp!.heal();
  const connIds = await agent.create([
    { userId: 1, server },
    { userId: 2, server },
  ]);
  await agent.active(connIds);
  await agent.idle();

  await eventually('all of it to be exported', async () => {
    expect(pointsOf('rows')).toEqual({ 'status=NEW': 1, 'status=CREATED NEW': 2 });
    expect(pointsOf('commands')).toEqual({ 'kind=create': 2 });
    return true;
  });
  expect(pointsOf('work')).toEqual({
    'kind=smp-key result=given_up': 1,
    'kind=smp-key result=done': 2,
    'kind=ntf-create result=done': 2,
  });
  expect(pointsOf('events')).toEqual({ 'kind=ERRS': 1 });
  expect(pointsOf('without_action')).toEqual({ '': 1 });
  expect(pointsOf('due')).toEqual({ 'pool=ntf-smp': 0, 'pool=ntf-ntf': 0, 'pool=ntf-tkn-del': 0 });
  expect(pointsOf('token_deletions')).toEqual({ '': 0 });
  expect(pointsOf('worker_deaths')).toEqual({});
});
