/** Changes of connections by their agent, and a process that dies after each step of them. */
import type { WorkflowUpdateHandle } from '@temporalio/client';
import {
  CLOSE_UPDATE,
  DELETE_CONNECTIONS_UPDATE,
  OPEN_UPDATE,
  TOGGLE_CONNECTIONS_UPDATE,
} from '../../workflows/subscription/contract.ts';
import { answerTo, isAtRest } from '../crash-walk.ts';
import { AGENT, agentOfTests, crashWalkOfAgents } from './agent.ts';
import { agreement } from './agreement.ts';

const CONNECTIONS = 40;

const agent = agentOfTests({ smp: 2 });
const walk = crashWalkOfAgents(agent, {
  // Each process sweeps at its start as well.
  NOTIFICATION_RECONCILIATION_INTERVAL: '6s',
});
/** Connections with which nothing has been done yet. */
let untouched: string[];
beforeAll(async () => {
  await walk.survivor();
  await agent.activateToken();
  untouched = await agent.createMany(CONNECTIONS);
  await agent.active(undefined, 120_000);
}, 180_000);

const next = (): string => untouched.shift()!;
const toggle = (connId: string, enable: boolean): Promise<unknown> =>
  agent.update(TOGGLE_CONNECTIONS_UPDATE, { connIds: [connId], enable });
/** Whatever is asked from now on comes after it. */
const accepted = (name: string, argument: object = {}): Promise<WorkflowUpdateHandle<unknown>> =>
  agent.supervisor.startUpdate<unknown, [object]>(name, { args: [argument], waitForStage: 'ACCEPTED' });
const flagsOf = (connIds: readonly string[]) =>
  agent.rows<{ conn_id: string; enable_ntfs: boolean | null }>(
    'SELECT conn_id, enable_ntfs FROM subscriptions.connections WHERE conn_id = ANY($1)',
    [connIds],
  );

test('N1 N13 N14 a process that dies after any step of switching notifications: they are as was asked last', async () => {
  const off: string[] = [];
  const on: string[] = [];
  const answers: Promise<unknown>[] = [];
  const putOff = async () => {
    const connId = next();
    off.push(connId);
    const answer = toggle(connId, false);
    answers.push(answer);
    return answerTo(answer);
  };
  const putBoth = async () => {
    const connId = next();
    on.push(connId);
    const first = await accepted(TOGGLE_CONNECTIONS_UPDATE, { connIds: [connId], enable: false });
    const both = Promise.all([first.result(), toggle(connId, true)]);
    answers.push(both);
    return answerTo(both);
  };
  const putRemoval = async () => {
    const connId = next();
    off.push(connId);
    answers.push(toggle(connId, false));
    return async () => {
      const isRemoved = (await agent.record(connId)) === undefined;
      const workers = agent.routers.smp.map(({ address }) => agent.worker('ntf-smp', address));
      return isRemoved && (await Promise.all(workers.map(isAtRest))).every(Boolean);
    };
  };
  const kills = {
    toggled: await walk.through('toggleConnections', putOff, 3),
    toggledTwice: await walk.through('toggleConnections', putBoth, 3),
    removed: await walk.through('runDeletes', putRemoval, 5),
  };
  console.info(`processes that died: ${JSON.stringify(kills)}`);
  expect(kills).toMatchObject({ toggled: 1, toggledTwice: 1 });
  // The credentials here, those on the router, the look at the records of others, the record.
  expect(kills.removed).toBe(4);

  await walk.survivor();
  await Promise.all(answers);
  await agreement(agent);
  const flags = await flagsOf([...off, ...on]);
  expect(flags.map(({ conn_id }) => conn_id).sort()).toEqual([...off, ...on].sort());
  for (const { conn_id: connId, enable_ntfs: isEnabled } of flags) {
    expect({ connId, isEnabled: isEnabled !== false }).toEqual({ connId, isEnabled: on.includes(connId) });
  }
  expect(await agent.events()).toEqual([]);
}, 480_000);

test('N1 N13 a process that dies after any step of deleting: no notifier, connection or record is left over', async () => {
  const deleted: string[] = [];
  const putDeletion = async () => {
    const connId = next();
    deleted.push(connId);
    return answerTo(agent.update(DELETE_CONNECTIONS_UPDATE, { connIds: [connId] }));
  };
  const putRemoval = async () => {
    const isAnswered = await putDeletion();
    return async () => {
      const left = await agent.rows('SELECT 1 FROM subscriptions.connections WHERE is_deleted');
      return (await isAnswered()) && left.length === 0;
    };
  };
  const kills = {
    deleted: await walk.through('deleteConnections', putDeletion, 3),
    removed: await walk.through('runDeletes', putRemoval, 4),
  };
  console.info(`processes that died: ${JSON.stringify(kills)}`);
  // The rows.
  expect(kills.deleted).toBe(1);
  // A sweep may have been there first.
  expect(kills.removed).toBeGreaterThanOrEqual(1);

  await walk.survivor();
  const ids = (await agreement(agent)).map(({ conn_id }) => conn_id);
  expect(deleted.filter((connId) => ids.includes(connId))).toEqual([]);
  expect(await agent.events()).toEqual([]);
}, 480_000);

test('N13 a process that dies after any step of closing an agent: it works in the end, as was asked last', async () => {
  const answers: Promise<unknown>[] = [];
  const putClosing = async () => {
    // Something for the workers to be cut off from.
    answers.push(toggle(next(), false));
    const first = await accepted(CLOSE_UPDATE);
    const both = Promise.all([first.result(), agent.update(OPEN_UPDATE)]);
    answers.push(both);
    return answerTo(both);
  };
  const kills = {
    // The row, and the first of those that are told.
    closed: await walk.through('setOpen', putClosing, 2),
  };
  console.info(`processes that died: ${JSON.stringify(kills)}`);
  expect(kills).toEqual({ closed: 2 });

  await walk.survivor();
  await Promise.all(answers);
  expect((await agreement(agent)).length).toBeGreaterThan(0);
  const [row] = await agent.rows<object>('SELECT is_open FROM subscriptions.agents WHERE agent_id = $1', [
    AGENT,
  ]);
  expect(row).toEqual({ is_open: true });
  expect(await agent.state()).toMatchObject({ isOpen: true });
  // And goes on working.
  const [made] = await agent.createMany(1);
  await agent.active([made!], 120_000);
  expect(await agent.events()).toEqual([]);
}, 480_000);
