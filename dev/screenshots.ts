/**
 * `npm run screenshots`: the pictures of the pages, of this program in a real Web UI. Starts the demo, publishes intents whose
 * push cannot be handed off, replays one, cancels many that wait, and lets a headless Chromium look. Needs `chromium` on the PATH.
 */
import { execFile, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import assert from 'node:assert/strict';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Redis } from 'ioredis';
import { newGameFinished, publishIntent } from '../client/notificationintent.ts';
import { readStackEndpoints } from '../config/operator.ts';
import { breakPushEvents } from './outage.ts';
import { freePort } from './servers/ports.ts';

const ROOT = path.dirname(import.meta.dirname);
const PICTURES = path.join(ROOT, 'docs', 'operate', 'pictures');
/** A page loads them whole. */
const MAX_PICTURE_BYTES = 120_000;
const DATA_DIR = path.join(ROOT, '.data', 'screenshots');
/** Of a start that has to build Temporal first, ms. */
const START_LIMIT_MS = 600_000;
const PAGE_LIMIT_MS = 60_000;
/** Wide enough for the Web UI to put its header into columns. */
const [WIDTH, HEIGHT] = [1640, 780];
/** Of a pixel of the picture to one of the page. */
const SCALE = 0.7;

/** In the page: stack traces show the folder of this checkout, which a picture must not show. */
const WITHOUT_PATHS = `{
  // The editor that shows code takes back what others change in it; a copy of it has no such watch.
  for (const editor of document.querySelectorAll('.cm-editor')) editor.replaceWith(editor.cloneNode(true));
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    texts.currentNode.data = texts.currentNode.data.replaceAll(${JSON.stringify(`${ROOT}/`)}, '');
  }
}`;

/** In the page: what it shows. Details are in frames, which it does not look into. */
const TEXT_OF_PAGE = 'document.body.innerText';

const run = promisify(execFile);
const cli = async (...args: string[]) => {
  const command = [process.execPath, path.join(ROOT, 'cli', 'main.ts'), ...args, '--json'];
  // A route that died is exit code 1, with the result all the same.
  const { stdout = '' } = await run('env', [`NOTIFICATION_DATA_DIR=${DATA_DIR}`, ...command]).catch(
    (error: { stdout?: string }) => error,
  );
  return JSON.parse(stdout) as unknown;
};

async function until<T>(what: string, limitMs: number, probe: () => Promise<T | undefined>): Promise<T> {
  const deadline = Date.now() + limitMs;
  while (Date.now() < deadline) {
    const found = await probe().catch(() => undefined);
    if (found !== undefined) return found;
    await sleep(200);
  }
  throw new Error(`${what}: not within ${limitMs / 1_000} s`);
}

/** The demo on free ports, with everything delivered, until `stop`. */
async function startDemo() {
  rmSync(DATA_DIR, { recursive: true, force: true });
  const demo = spawn(
    'env',
    [
      `NOTIFICATION_DATA_DIR=${DATA_DIR}`,
      process.execPath,
      path.join(ROOT, 'dev', 'demo', 'main.ts'),
      '--keep',
    ],
    { cwd: ROOT, stdio: ['ignore', 'ignore', 'pipe'] },
  );
  let said = '';
  demo.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()));
  await until('the demo', START_LIMIT_MS, async () =>
    said.includes('Everything keeps running') || demo.exitCode !== null ? true : undefined,
  );
  if (demo.exitCode !== null) throw new Error(`the demo has ended:\n${said}`);
  const ended = new Promise((resolve) => demo.once('exit', resolve));
  return {
    async stop() {
      demo.kill('SIGINT');
      await ended;
    },
  };
}

interface Published {
  notificationId: string;
  link: string;
}

const publish = (key: string) =>
  cli(
    ...['intents', 'publish', 'game.turn.ready', '--to', 'user-1,user-2', '--key', key, '--wait'],
    ...['--field', 'game_id=game-7', '--field', 'game_name=Andromeda', '--field', 'turn_number=54'],
  ) as Promise<Published>;

interface Operation {
  operationId: string;
  done: number;
  link: string;
}

/** So slowly that the picture shows it on its way. */
async function cancelMany(redis: Redis): Promise<Operation> {
  await cli('producers', 'pause', 'game_master', '--reason', 'INC-42');
  for (let n = 1; n <= 500; n += 1) {
    const payload = { game_id: 'game-7', game_name: 'Andromeda', final_turn_number: 54 };
    const to = { recipientUserIds: ['user-3'], occurredAt: Date.now() };
    await publishIntent(redis, newGameFinished({ ...to, idempotencyKey: `wrong/${n}`, payload }));
  }
  const begun = (await cli(
    ...['notifications', 'cancel', '--producer', 'game_master', '--type', 'game.finished', '--since', '1h'],
    ...['--rate', '10', '--reason', 'INC-42', '--requested-by', 'nina', '--yes', '--detach'],
  )) as Operation;
  await until('some to be cancelled', PAGE_LIMIT_MS, async () => {
    const { done } = (await cli('operations', 'show', begun.operationId)) as Operation;
    return done >= 150 || undefined;
  });
  return begun;
}

/** Drives a page of Chromium by its debugging protocol. */
async function openBrowser() {
  const port = await freePort();
  const profile = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-chromium-'));
  const chromium = spawn(
    'chromium',
    [
      ...['--headless=new', '--no-sandbox', '--disable-gpu', '--hide-scrollbars'],
      ...[`--user-data-dir=${profile}`, `--remote-debugging-port=${port}`],
      'about:blank',
    ],
    { stdio: 'ignore' },
  );
  const page = await until('chromium', PAGE_LIMIT_MS, async () => {
    const tabs = (await (await fetch(`http://127.0.0.1:${port}/json`)).json()) as {
      type: string;
      webSocketDebuggerUrl: string;
    }[];
    return tabs.find(({ type }) => type === 'page');
  });
  const socket = new WebSocket(page.webSocketDebuggerUrl);
  await new Promise((resolve) => socket.addEventListener('open', resolve, { once: true }));
  const waiting = new Map<number, (result: unknown) => void>();
  socket.addEventListener('message', ({ data }) => {
    const { id, result } = JSON.parse(String(data)) as { id: number; result: unknown };
    waiting.get(id)?.(result);
  });
  let lastId = 0;
  const send = <T>(method: string, params: object = {}) =>
    new Promise<T>((resolve) => {
      waiting.set(++lastId, resolve as (result: unknown) => void);
      socket.send(JSON.stringify({ id: lastId, method, params }));
    });
  await send('Emulation.setDeviceMetricsOverride', {
    ...{ width: WIDTH, height: HEIGHT, deviceScaleFactor: SCALE, mobile: false },
  });
  const shown = async (url: string, texts: string[]): Promise<void> => {
    let text: string | undefined;
    await until(url, PAGE_LIMIT_MS, async () => {
      const { result } = await send<{ result: { value?: string } }>('Runtime.evaluate', {
        expression: TEXT_OF_PAGE,
      });
      text = result.value;
      return texts.every((one) => text?.includes(one)) ? true : undefined;
    }).catch((error: Error) => {
      throw new Error(`${error.message}: ${text}`);
    });
  };
  return {
    /** As an operator does once, with the gear of the list. @param url of any page of the Web UI. */
    async chooseColumns(url: string): Promise<void> {
      await send('Page.navigate', { url });
      await shown(url, ['Workflows']);
      // Those of docs/operate/web-ui.md.
      const chosen = [
        ...['Status', 'Workflow ID', 'NotificationType', 'RouteStatus', 'FailureClassification'],
        ...['DeadRoutes', 'UserId'],
      ];
      const columns = JSON.stringify({ default: chosen.map((label) => ({ label })) });
      await send('Runtime.evaluate', {
        expression: `localStorage.setItem('namespace-workflow-table-columns', ${JSON.stringify(columns)})`,
      });
    },

    /**
     * @param texts that the page shows when it is complete.
     * @param tab that is opened first.
     */
    async picture(url: string, texts: string[], file: string, tab?: string): Promise<void> {
      await send('Page.navigate', { url });
      if (tab !== undefined) {
        await shown(url, [tab]);
        const links = "[...document.querySelectorAll('a')]";
        await send('Runtime.evaluate', {
          expression: `${links}.find((link) => link.innerText.includes(${JSON.stringify(tab)})).click()`,
        });
      }
      await shown(url, texts);
      // Fonts, transitions and frames; there is nothing to ask for them.
      await sleep(4_000);
      await send('Runtime.evaluate', { expression: WITHOUT_PATHS });
      const { data } = await send<{ data: string }>('Page.captureScreenshot', { format: 'png' });
      const picture = Buffer.from(data, 'base64');
      writeFileSync(path.join(PICTURES, file), picture);
      assert(picture.length <= MAX_PICTURE_BYTES, `${file} has ${picture.length} bytes`);
    },
    async close() {
      const ended = new Promise((resolve) => chromium.once('exit', resolve));
      chromium.kill('SIGTERM');
      await ended;
      rmSync(profile, { recursive: true, force: true });
    },
  };
}

/** The tab of a workflow's page that has its details. */
const METADATA = 'User Metadata';

const demo = await startDemo();
let browser: Awaited<ReturnType<typeof openBrowser>> | undefined;
const startedAt = new Date();
try {
  const stack = readStackEndpoints(DATA_DIR);
  if (!stack) throw new Error('the demo left no endpoints');
  const [host = '', port] = stack.redisAddr!.split(':');
  const redis = new Redis({ host, port: Number(port) });

  const repair = await breakPushEvents(redis, 'gateway:client-events');
  const notification = await publish('game-7/turn-54');
  await publish('game-7/turn-55');
  await repair();

  mkdirSync(PICTURES, { recursive: true });
  browser = await openBrowser();
  const { origin: uiUrl } = new URL(notification.link);
  const all = `${uiUrl}/namespaces/default/workflows?query=${encodeURIComponent(
    `StartTime > '${startedAt.toISOString()}' AND WorkflowType STARTS_WITH 'notification'`,
  )}`;
  await browser.chooseColumns(uiUrl);
  await browser.picture(all, ['FailureClassification', 'dead_letter'], 'list.png');
  await browser.picture(notification.link, ['COMPLETED', 'Current Details'], 'notification.png', METADATA);
  const letter = `${uiUrl}/namespaces/default/workflows/${encodeURIComponent(
    `dead-letter/${notification.notificationId}/push:user:user-1`,
  )}`;
  await browser.picture(letter, ['RUNNING', 'Current Details'], 'dead-letter-before.png', METADATA);
  await cli('replay', notification.notificationId, 'push:user:user-1', '--wait', '--reason', 'INC-42');
  await browser.picture(letter, ['COMPLETED', 'Current Details'], 'dead-letter-after.png', METADATA);
  const operation = await cancelMany(redis);
  redis.disconnect();
  await browser.picture(operation.link, ['RUNNING', 'Current Details'], 'operation.png', METADATA);
} finally {
  await browser?.close();
  await demo.stop();
}
