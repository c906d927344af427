/**
 * The process of the peers: DBOS on the PostgreSQL of the run, and no engine at all, around acceptance and the first
 * attempts of all routes; and DBOS around acceptance and a child for each route. It is given orders by the benchmark.
 */
import { DBOS } from '@dbos-inc/dbos-sdk';
import type { Info } from '@temporalio/activity';
import { Context, asyncLocalStorage } from '@temporalio/activity';
import { noopMetricMeter } from '@temporalio/common';
import { DefaultLogger } from '@temporalio/worker';
import type { Acceptance, NotificationInput, RouteKey } from '../../workflows/intent/contract.ts';
import type { Order, Times } from '../orders.ts';
import { inFlight, serveOrders } from '../orders.ts';
import { openWork, insertNth } from '../work.ts';

export type PeerShape = 'dbos' | 'dbos-tree' | 'no-engine';

type Accepted = Extract<Acceptance, { outcome: 'accepted' }>;

/** As many as are in flight. */
const POOL_SIZE = 50;

const { connections, endpoints, activities } = await openWork();
const log = new DefaultLogger('ERROR');
const never = new Promise<never>(() => undefined);
const { signal } = new AbortController();

const accept = async (intent: NotificationInput): Promise<Accepted> => {
  const acceptance = await asActivity(() => activities.acceptIntent(intent));
  if (acceptance.outcome !== 'accepted') throw new Error(`not accepted: ${acceptance.outcome}`);
  return acceptance;
};
const publishAll = async (notificationId: string, limit: number): Promise<void> => {
  const slice = { notificationId, offset: 0, limit };
  const { open } = await asActivity(() => activities.publishSlice(slice));
  if (open > 0) throw new Error(`${open} routes are not published`);
};
const publishOne = async (route: RouteKey): Promise<void> => {
  const { status } = await asActivity(() => activities.publishRoute(route));
  if (status !== 'published') throw new Error(`not published: ${status}`);
};

const single = DBOS.registerWorkflow(
  async (intent: NotificationInput) => {
    const { routeCount } = await DBOS.runStep(() => accept(intent), { name: 'accept' });
    await DBOS.runStep(() => publishAll(intent.notificationId, routeCount), { name: 'publish' });
  },
  { name: 'single' },
);

const route = DBOS.registerWorkflow(
  async (key: RouteKey) => {
    await DBOS.runStep(() => publishOne(key), { name: 'publish' });
  },
  { name: 'route' },
);

const tree = DBOS.registerWorkflow(
  async (intent: NotificationInput) => {
    const { notificationId } = intent;
    const { routes = [] } = await DBOS.runStep(() => accept(intent), { name: 'accept' });
    const children = await Promise.all(
      routes.map((routeRef) =>
        DBOS.startWorkflow(route, { workflowID: `${notificationId}/${routeRef}` })({
          notificationId,
          routeRef,
        }),
      ),
    );
    await Promise.all(children.map((child) => child.getResult()));
  },
  { name: 'tree' },
);

const SHAPES: Record<PeerShape, (intent: NotificationInput) => Promise<void>> = {
  async dbos(intent) {
    const handle = await DBOS.startWorkflow(single, { workflowID: intent.notificationId })(intent);
    await handle.getResult();
  },
  async 'dbos-tree'(intent) {
    const handle = await DBOS.startWorkflow(tree, { workflowID: intent.notificationId })(intent);
    await handle.getResult();
  },
  async 'no-engine'(intent) {
    const { routeCount } = await accept(intent);
    await publishAll(intent.notificationId, routeCount);
  },
};

const systemDatabase = new URL(endpoints.postgresDsn);
systemDatabase.pathname += '_dbos';
DBOS.setConfig({
  name: 'bench',
  systemDatabaseUrl: systemDatabase.href,
  systemDatabasePoolSize: POOL_SIZE,
  logLevel: 'error',
});
await DBOS.launch();
serveOrders(carryOut);

function carryOut({ shape, count }: Order<PeerShape>): Promise<Times> {
  return inFlight(count, async (n, beganAtMs) =>
    SHAPES[shape](await insertNth(connections.db, beganAtMs, n)),
  );
}

/** Runs what is made for a worker of Temporal, as the first try of a notification does. */
function asActivity<T>(run: () => Promise<T>): Promise<T> {
  const info = { isLocal: true, attempt: 1 } as Info;
  const context = new Context(info, never, signal, () => undefined, undefined, log, noopMetricMeter, {});
  return asyncLocalStorage.run(context, run);
}
