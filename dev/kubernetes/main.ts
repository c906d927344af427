/**
 * `npm run test:chart`: the chart in a real API server (api-server.ts). Each set of values in deploy/helm/galaxy-notify/ci/ is installed,
 * upgraded, rolled back and removed, into a namespace that enforces the restricted standard for pods.
 */
import { readFileSync, readdirSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parse } from 'yaml';
import { explain } from '../../api/errors.ts';
import { findGoProgram } from '../go-programs.ts';
import { report, runProgram } from '../program.ts';
import { runCommand } from '../servers/command.ts';
import type { ApiError, ApiServer } from './api-server.ts';
import { startApiServer } from './api-server.ts';

const CHART = path.join(import.meta.dirname, '../../deploy/helm/galaxy-notify');
/** Where validate.sh keeps CRDs; it gets them. */
const CRDS = path.join(os.homedir(), '.cache', 'galaxy-notify', 'tools');
const RELEASE = 'notify';
const LIMIT_MS = 120_000;
const HELM_LIMIT = '180s';

let failed = 0;

async function check(name: string, run: () => Promise<unknown>): Promise<void> {
  try {
    await run();
    process.stdout.write(`ok      ${name}\n`);
  } catch (error) {
    failed += 1;
    process.stdout.write(`FAILED  ${name}\n${explain(error)}\n`);
  }
}

async function main(): Promise<void> {
  // Ending through `exit` takes the servers along, which a signal by itself would leave behind.
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130));
  const helmProgram = await findGoProgram('helm', report);
  report('Starting etcd, the API server, controllers, the scheduler and kwok');
  const api = await startApiServer(report);
  try {
    await addCrds(api);
    const helm = (...args: string[]) => runCommand(helmProgram, ['--kubeconfig', api.kubeconfig, ...args]);
    for (const file of readdirSync(path.join(CHART, 'ci'))) await tryValues(file, api, helm);
  } finally {
    await api.stop();
  }
}

type Helm = (...args: string[]) => Promise<string>;

async function tryValues(file: string, api: ApiServer, helm: Helm): Promise<void> {
  const name = path.basename(file, '.yaml');
  const namespace = `try-${name}`;
  const values = path.join(CHART, 'ci', file);
  const release = ['--namespace', namespace, '--values', values, '--wait', '--timeout', HELM_LIMIT];
  const at = (group: string, things: string) => `/${group}/namespaces/${namespace}/${things}`;
  const list = async <T>(group: string, things: string) =>
    (await api.call<{ items: T[] }>('GET', at(group, things))).items;
  const deployments = () => list<Deployment>('apis/apps/v1', 'deployments');
  const templates = async () =>
    Object.fromEntries((await deployments()).map((one) => [one.metadata.name, one.spec.template]));
  await api.call('POST', '/api/v1/namespaces', {
    apiVersion: 'v1',
    kind: 'Namespace',
    metadata: { name: namespace, labels: { 'pod-security.kubernetes.io/enforce': 'restricted' } },
  });
  await addWhatIsNamed(values, namespace, api);

  await check(`${name}: it is installed, its set-up job ends, and every process is ready`, async () => {
    await helm('install', RELEASE, CHART, ...release);
    if ((await deployments()).length === 0) throw new Error('there is no Deployment');
    for (const { metadata, status } of await deployments())
      if (!status.readyReplicas) throw new Error(`${metadata.name} has no pod that is ready`);
  });
  const first = await templates();
  await check(`${name}: pods of a role are not all on one node`, async () => {
    const pods = await list<Pod>('api/v1', 'pods');
    const nodes = new Map<string, Set<string>>();
    for (const { metadata, spec } of pods) {
      const role = metadata.labels['app.kubernetes.io/component']!;
      if (role !== 'setup') nodes.set(role, (nodes.get(role) ?? new Set()).add(spec.nodeName));
    }
    for (const { metadata, status } of await deployments()) {
      const role = metadata.labels['app.kubernetes.io/component']!;
      if ((status.readyReplicas ?? 0) > 1 && nodes.get(role)!.size < 2)
        throw new Error(`all pods of ${role} are on ${[...nodes.get(role)!].join()}`);
    }
  });
  await check(`${name}: one pod of a role may be evicted, and no other before it is back`, async () => {
    const pods = (await list<Pod>('api/v1', 'pods')).filter(
      ({ metadata }) => metadata.labels['app.kubernetes.io/component'] === 'intent',
    );
    if (pods.length < 2) return;
    const evict = ({ metadata }: Pod) =>
      api.call('POST', at('api/v1', `pods/${metadata.name}/eviction`), {
        apiVersion: 'policy/v1',
        kind: 'Eviction',
        metadata: { name: metadata.name, namespace },
      });
    const answers = await Promise.allSettled(pods.map(evict));
    const refused = answers.filter(
      (answer) => answer.status === 'rejected' && (answer.reason as ApiError).status === 429,
    );
    if (refused.length !== pods.length - 1)
      throw new Error(`${answers.length - refused.length} of ${pods.length} were evicted at the same time`);
    await until('all pods to be ready again', async () =>
      (await deployments()).every(({ spec, status }) => status.readyReplicas === spec.replicas),
    );
  });
  await check(`${name}: it is upgraded to another image, and set up once more`, async () => {
    await helm('upgrade', RELEASE, CHART, ...release, '--set', 'image.digest=', '--set', 'image.tag=next');
    const now = await templates();
    for (const [one, template] of Object.entries(now))
      if (!/:next$/.test(template.spec.containers[0]!.image)) throw new Error(`${one} has another image`);
  });
  await check(`${name}: it is rolled back to what it was`, async () => {
    await helm('rollback', RELEASE, '1', '--namespace', namespace, '--wait', '--timeout', HELM_LIMIT);
    const now = await templates();
    if (JSON.stringify(now) !== JSON.stringify(first)) throw new Error('pods are not as they were');
  });
  await check(`${name}: it is removed, and leaves nothing`, async () => {
    await helm('uninstall', RELEASE, '--namespace', namespace, '--wait', '--timeout', HELM_LIMIT);
    for (const [group, things] of [
      ['apis/apps/v1', 'deployments'],
      ['apis/policy/v1', 'poddisruptionbudgets'],
      ['apis/networking.k8s.io/v1', 'networkpolicies'],
      ['apis/keda.sh/v1alpha1', 'scaledobjects'],
    ] as const) {
      const left = await list<Named>(group, things);
      if (left.length > 0) throw new Error(`${things}: ${left.map(({ metadata }) => metadata.name).join()}`);
    }
  });
}

interface Named {
  metadata: { name: string; labels: Record<string, string> };
}
interface Deployment extends Named {
  spec: { replicas: number; template: { spec: { containers: { image: string }[] } } };
  status: { readyReplicas?: number };
}
interface Pod extends Named {
  spec: { nodeName: string };
}

/** Definitions whose objects the chart makes: what they refuse, the API server refuses, their rules in CEL included. */
async function addCrds(api: ApiServer): Promise<void> {
  const folders = readdirSync(CRDS).filter((name) => /^crds-[a-z-]+$/.test(name));
  if (folders.length === 0) throw new Error('there are no CRDs: run deploy/validate.sh first');
  for (const folder of folders)
    for (const file of readdirSync(path.join(CRDS, folder))) {
      const crd = parse(readFileSync(path.join(CRDS, folder, file), 'utf8')) as Named & {
        spec: { group: string; names: { plural: string }; versions: { name: string; served: boolean }[] };
      };
      await api.call('POST', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', crd);
      const version = crd.spec.versions.findLast(({ served }) => served)!.name;
      await until(`${crd.metadata.name} to be served`, async () => {
        await api.call('GET', `/apis/${crd.spec.group}/${version}/${crd.spec.names.plural}`);
        return true;
      });
    }
}

/** What values name and the chart does not make: a namespace for the collector, and a class of priority. */
async function addWhatIsNamed(values: string, namespace: string, api: ApiServer): Promise<void> {
  const { monitoring, priorityClassName: priority } = parse(readFileSync(values, 'utf8')) as {
    monitoring?: { serviceMonitor?: { namespace?: string } };
    priorityClassName?: string;
  };
  const other = monitoring?.serviceMonitor?.namespace;
  const add = (at: string, body: object) =>
    api.call('POST', at, body).catch((error: ApiError) => {
      if (error.status !== 409) throw error;
    });
  if (other !== undefined)
    await add('/api/v1/namespaces', { apiVersion: 'v1', kind: 'Namespace', metadata: { name: other } });
  if (priority !== undefined)
    await add('/apis/scheduling.k8s.io/v1/priorityclasses', {
      apiVersion: 'scheduling.k8s.io/v1',
      kind: 'PriorityClass',
      metadata: { name: priority },
      value: 1_000,
    });
  // Pods of the hook begin with the namespace's own account.
  await until('the account of the namespace', async () => {
    await api.call('GET', `/api/v1/namespaces/${namespace}/serviceaccounts/default`);
    return true;
  });
}

async function until(what: string, probe: () => Promise<boolean>): Promise<void> {
  let last: unknown;
  for (const deadline = Date.now() + LIMIT_MS; Date.now() < deadline; await sleep(100)) {
    try {
      if (await probe()) return;
    } catch (error) {
      last = error;
    }
  }
  throw new Error(`waited ${LIMIT_MS / 1_000} s for ${what}`, { cause: last });
}

await runProgram(async () => {
  await main();
  return failed === 0;
});
