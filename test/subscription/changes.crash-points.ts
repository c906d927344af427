/** Changes of connections, and a process that dies after each step of the work that they lead to. */
import { CLOSE_UPDATE, OPEN_UPDATE } from '../../workflows/subscription/contract.ts';
import { answerTo, isAtRest } from '../crash-walk.ts';
import { agentOfTests, crashWalkOfConnections } from './agent.ts';
import { agreement } from './agreement.ts';

const agent = agentOfTests({ smp: 2 });
// Each process sweeps at its start as well.
const { walk, next } = crashWalkOfConnections(agent, 40, '6s');

test('N1 N13 N14 a process that dies after any step of ending a subscription: no notifier, record or deleted connection is left over', async () => {
  const [off, deleted]: [string[], string[]] = [[], []];
  const putRemoval = async () => {
    const connId = next();
    if (off.length > deleted.length) {
      deleted.push(connId);
      await agent.remove([connId]);
    } else {
      off.push(connId);
      await agent.toggle([connId], false);
    }
    return async () => {
      const isRemoved = !(await agent.record(connId)) && (await agent.deleting()).length === 0;
      const workers = agent.routers.smp.map(({ address }) => agent.worker('ntf-smp', address));
      return isRemoved && (await Promise.all(workers.map(isAtRest))).every(Boolean);
    };
  };
  // The credentials here, those on the router, the look at the records of others, the record.
  expect(await walk.through('runDeletes', putRemoval, 5)).toBe(4);

  await walk.survivor();
  const left = await agreement(agent);
  expect(left.filter(({ conn_id: connId }) => deleted.includes(connId))).toEqual([]);
  const flags = await agent.rows<{ conn_id: string }>(
    'SELECT conn_id FROM subscriptions.connections WHERE NOT enable_ntfs',
  );
  expect(flags.map(({ conn_id }) => conn_id).sort()).toEqual(off.sort());
  expect(await agent.events()).toEqual([]);
}, 480_000);

test('N13 a process that dies after any step of closing an agent: it works in the end, as was asked last', async () => {
  const answers: Promise<unknown>[] = [];
  const putClosing = async () => {
    // Something for the workers to be cut off from.
    await agent.toggle([next()], false);
    // The opening comes after it.
    const first = await agent.supervisor.startUpdate<unknown, []>(CLOSE_UPDATE, { waitForStage: 'ACCEPTED' });
    const both = Promise.all([first.result(), agent.update(OPEN_UPDATE)]);
    answers.push(both);
    return answerTo(both);
  };
  // The row, and the first of those that are told.
  expect(await walk.through('setOpen', putClosing, 2)).toBe(2);

  await walk.survivor();
  await Promise.all(answers);
  expect((await agreement(agent)).length).toBeGreaterThan(0);
  expect(await agent.rows("SELECT is_open FROM subscriptions.agents WHERE agent_id = 'default'")).toEqual([
    { is_open: true },
  ]);
  expect(await agent.state()).toMatchObject({ isOpen: true });
  // And goes on working.
  const [made] = await agent.createMany(1);
  await agent.active([made!], 120_000);
  expect(await agent.events()).toEqual([]);
}, 480_000);
