/**
 * Weights of producers in Temporal's task queue, on the server of this run. That each intent names its producer there,
 * dispatch.service.test.ts shows; what Temporal hands out by that is Temporal's.
 */
import { cliOfTests } from '../command-line.ts';
import { eventually, operatorOfTests, slotOfTests } from '../harness.ts';

const slot = slotOfTests();
const operator = operatorOfTests(slot);
const bench = cliOfTests(slot);

const weigh = (...args: string[]) => bench.cli(['producers', 'weight', 'game_lobby', ...args]);
const untilWeight = (wanted: number) =>
  eventually(`the weight ${wanted} to be shown`, async () => {
    const producers = await operator.producers.list();
    return producers.find(({ producer }) => producer === 'game_lobby')?.weight === wanted;
  });
const actions = async () =>
  (await operator.actions.list({ action: 'producers weight' })).items.map(({ detail }) => detail);

test('I86 an operator sets the weight of a producer in the task queue, or learns that this Temporal has none', async () => {
  expect(await weigh('0')).toMatchObject({ code: 2, stdout: '' });
  await untilWeight(1);
  const { serverVersion } = await slot.client.workflowService.getSystemInfo({});
  const hasWeights = !/^1\.(\d|[12]\d)\./.test(serverVersion);
  expect(await weigh('0.25', '--requested-by', 'nina')).toMatchObject(
    hasWeights
      ? { code: 0, stdout: 'game_lobby has the weight 0.25\n' }
      : { code: 1, stdout: '', stderr: expect.stringContaining('Temporal took no weight') },
  );
  await untilWeight(hasWeights ? 0.25 : 1);
  if (hasWeights) expect(await weigh('1')).toMatchObject({ code: 0 });
  await untilWeight(1);
  expect(await actions()).toEqual(hasWeights ? ['1', '0.25'] : []);
});
