/**
 * A Kubernetes without a machine: the real API server with etcd, the controllers and the scheduler, and kwok in the place of
 * kubelets, which says of each pod that it runs. What a cluster refuses, and what becomes of Deployments, Jobs and budgets, is as
 * in any other; only no container is started.
 */
import { createPrivateKey, createPublicKey, generateKeyPairSync, randomBytes } from 'node:crypto';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Agent, fetch } from 'undici';
import { SelfExplanatoryError } from '../../api/errors.ts';
import { findGoProgram } from '../go-programs.ts';
import { commandSucceeds } from '../servers/command.ts';
import { LOOPBACK, freePort } from '../servers/ports.ts';
import { startServer, type Report, type RunningServer } from '../servers/server-process.ts';

export interface ApiServer {
  /** For Helm. */
  kubeconfig: string;
  /** Asks the API. @returns the answer. @throws ApiError. */
  call<T = unknown>(method: 'GET' | 'POST' | 'DELETE', at: string, body?: object): Promise<T>;
  stop(): Promise<void>;
}

export class ApiError extends Error {
  override name = 'ApiError';
  readonly status: number;

  constructor(status: number, message: string) {
    super(`${status}: ${message}`);
    this.status = status;
  }
}

const NODES = [
  ['node-1', 'zone-a'],
  ['node-2', 'zone-b'],
  ['node-3', 'zone-b'],
] as const;

/** @throws Error when a program cannot be had or started. */
export async function startApiServer(report: Report): Promise<ApiServer> {
  if (!(await commandSucceeds('etcd', ['--version'])))
    throw new SelfExplanatoryError('there is no etcd: install etcd-server');
  const program = (name: Parameters<typeof findGoProgram>[0]) => findGoProgram(name, report);
  const programs = {
    apiServer: await program('kube-apiserver'),
    controllers: await program('kube-controller-manager'),
    scheduler: await program('kube-scheduler'),
    kwok: await program('kwok'),
  };
  const dir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-kubernetes-'));
  chmodSync(dir, 0o700);
  // After the servers' own listener, which stops what is still running.
  process.once('exit', () => rmSync(dir, { recursive: true, force: true }));
  const running: RunningServer[] = [];
  const stop = async () => {
    for (const server of running.toReversed()) await server.stop();
  };
  try {
    const [etcdPort, etcdPeerPort, port] = [await freePort(), await freePort(), await freePort()];
    const url = `https://${LOOPBACK}:${port}`;
    const token = randomBytes(16).toString('hex');
    const file = (name: string, text: string) => {
      writeFileSync(path.join(dir, name), text, { mode: 0o600 });
      return path.join(dir, name);
    };
    const tokens = file('tokens.csv', `${token},admin,admin,system:masters\n`);
    const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    const privatePem = privateKey.export({ type: 'pkcs1', format: 'pem' }).toString();
    const accountKey = file('accounts.key', privatePem);
    const accountPublicKey = file(
      'accounts.pub',
      createPublicKey(createPrivateKey(privatePem)).export({ type: 'spki', format: 'pem' }).toString(),
    );
    const certificates = path.join(dir, 'certificates');
    mkdirSync(certificates);
    const start = async (name: string, command: string, args: string[], ready: () => Promise<void>) =>
      void running.push(
        await startServer({
          name,
          title: name,
          dataDir: dir,
          command,
          args,
          ports: [],
          ready,
          readyLimitMs: 300_000,
          report,
        }),
      );

    const etcdUrl = `http://${LOOPBACK}:${etcdPort}`;
    const peerUrl = `http://${LOOPBACK}:${etcdPeerPort}`;
    await start(
      'etcd',
      'etcd',
      [
        ...['--data-dir', path.join(dir, 'etcd'), '--unsafe-no-fsync'],
        ...['--listen-client-urls', etcdUrl, '--advertise-client-urls', etcdUrl],
        ...['--listen-peer-urls', peerUrl, '--initial-advertise-peer-urls', peerUrl],
        ...['--initial-cluster', `default=${peerUrl}`],
      ],
      () => isFine(`${etcdUrl}/health`),
    );
    await start(
      'kube-apiserver',
      programs.apiServer,
      [
        `--etcd-servers=${etcdUrl}`,
        `--bind-address=${LOOPBACK}`,
        `--secure-port=${port}`,
        `--cert-dir=${certificates}`,
        `--token-auth-file=${tokens}`,
        '--authorization-mode=RBAC',
        '--service-account-issuer=https://kubernetes.default.svc',
        `--service-account-key-file=${accountPublicKey}`,
        `--service-account-signing-key-file=${accountKey}`,
        '--service-cluster-ip-range=10.0.0.0/24',
      ],
      () => isFine(`${url}/readyz`, token),
    );
    const authority = readFileSync(path.join(certificates, 'apiserver.crt'));
    const kubeconfig = file(
      'kubeconfig',
      // JSON is YAML.
      JSON.stringify({
        apiVersion: 'v1',
        kind: 'Config',
        'current-context': 'drill',
        clusters: [
          {
            name: 'drill',
            cluster: { server: url, 'certificate-authority-data': authority.toString('base64') },
          },
        ],
        users: [{ name: 'admin', user: { token } }],
        contexts: [{ name: 'drill', context: { cluster: 'drill', user: 'admin' } }],
      }),
    );
    const ports = [await freePort(), await freePort()];
    await start(
      'kube-controller-manager',
      programs.controllers,
      [
        `--kubeconfig=${kubeconfig}`,
        `--service-account-private-key-file=${accountKey}`,
        `--root-ca-file=${path.join(certificates, 'apiserver.crt')}`,
        '--use-service-account-credentials=true',
        // There is no machine that could be away, whenever its kwok gets to say so.
        '--node-monitor-grace-period=1h',
        '--leader-elect=false',
        `--bind-address=${LOOPBACK}`,
        `--secure-port=${ports[0]}`,
        `--cert-dir=${certificates}`,
      ],
      async () => undefined,
    );
    await start(
      'kube-scheduler',
      programs.scheduler,
      [
        `--kubeconfig=${kubeconfig}`,
        '--leader-elect=false',
        `--bind-address=${LOOPBACK}`,
        `--secure-port=${ports[1]}`,
        `--cert-dir=${certificates}`,
      ],
      async () => undefined,
    );
    await start(
      'kwok',
      programs.kwok,
      [`--kubeconfig=${kubeconfig}`, '--manage-all-nodes=true', '--node-ip=127.0.0.1'],
      async () => undefined,
    );

    const dispatcher = new Agent({ connect: { ca: authority } });
    const call: ApiServer['call'] = async <T>(method: string, at: string, body?: object) => {
      const response = await fetch(`${url}${at}`, {
        method,
        dispatcher,
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      const answer = (await response.json()) as T & { message?: string };
      if (!response.ok) throw new ApiError(response.status, answer.message ?? response.statusText);
      return answer;
    };
    for (const [name, zone] of NODES) await call('POST', '/api/v1/nodes', nodeOf(name, zone));
    return {
      kubeconfig,
      call,
      async stop() {
        await dispatcher.destroy();
        await stop();
      },
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Only until it is known by its certificate. */
async function isFine(url: string, token?: string): Promise<void> {
  const dispatcher = new Agent({ connect: { rejectUnauthorized: false } });
  try {
    const response = await fetch(url, {
      dispatcher,
      ...(token === undefined ? {} : { headers: { authorization: `Bearer ${token}` } }),
    });
    if (!response.ok) throw new Error(`${url} answers ${response.status}: ${await response.text()}`);
  } finally {
    await dispatcher.destroy();
  }
}

const nodeOf = (name: string, zone: string) => ({
  apiVersion: 'v1',
  kind: 'Node',
  metadata: {
    name,
    annotations: { 'kwok.x-k8s.io/node': 'fake' },
    labels: {
      'kubernetes.io/hostname': name,
      'kubernetes.io/os': 'linux',
      'topology.kubernetes.io/zone': zone,
    },
  },
  status: {
    allocatable: { cpu: '32', memory: '256Gi', pods: '110' },
    capacity: { cpu: '32', memory: '256Gi', pods: '110' },
  },
});
