/**
 * The clients in Go and Python: their own tests, the service's verdict on malformed entries, and publication
 * to a running service. Go and Python must be installed; a test that does not find them fails and says so.
 */
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import fc from 'fast-check';
import type { EntryFields } from '../../api/intent/entry.ts';
import { given } from '../../api/given.ts';
import { fieldNamedIn, fingerprintOf } from '../../api/intent/entry.ts';
import { parseCatalog } from '../../api/intent/galaxy.ts';
import type { NotificationIntent } from '../../client/notificationintent.ts';
import { InvalidIntentError, newIntent } from '../../client/notificationintent.ts';
import { createMemoryStream } from '../../client/testing.ts';
import { runCommand } from '../../dev/servers/command.ts';
import { startCommand } from '../command-line.ts';
import { slotOfTests } from '../harness.ts';
import { scratchFolder } from '../scratch.ts';
import { intentEntry, strangeIntent } from './fuzzed-entries.ts';
import { parseIntent } from './galaxy.ts';
import { bothPublished } from './rows.ts';

const CLIENTS = path.join(import.meta.dirname, '../../clients');
const GO = path.join(CLIENTS, 'go');
const PYTHON = path.join(CLIENTS, 'python');
const PYTHON_ENV = { PYTHONPATH: PYTHON, PYTHONDONTWRITEBYTECODE: '1' };
const CASES = Number(process.env['FUZZ_CASES'] ?? 1_000);
jest.setTimeout(300_000 + CASES * 5);

const scratch = scratchFolder('clients').dir;

test('I70 I71 the client in Go passes its own tests, vectors and examples included', async () => {
  await runCommand('go', ['-C', GO, 'vet', './...']);
  const output = await runCommand('go', ['-C', GO, 'test', '-count=1', './...']);
  expect(output).toMatch(/^ok\s+\S+\/clients\/go\s/m);
  expect(output).toMatch(/^ok\s+\S+\/clients\/go\/notifytest\s/m);
});

test('I70 I71 the client in Python passes its own tests, vectors and examples included', async () => {
  const tests = path.join(PYTHON, 'tests');
  const output = await runCommand('python3', ['-m', 'unittest', 'discover', '-s', tests, '-t', PYTHON], {
    env: PYTHON_ENV,
  });
  expect(output).toMatch(/Ran \d{2,} tests[^]*\nOK$/);
});

test('I76 I70 constructors of an own catalog, in Go and Python, refuse what the service would refuse', async () => {
  const shop = path.join(import.meta.dirname, '../../catalog/shop.yaml');
  const write = async (language: string, out: string) =>
    startCommand(['catalog', 'clients', shop, '--language', language, '--out', out], {}).ended;
  const go = path.join(scratch, 'own');
  expect(await write('go', path.join(go, 'shop'))).toMatchObject({ code: 0, stderr: '' });
  const module = /^module (\S+)/.exec(readFileSync(path.join(GO, 'go.mod'), 'utf8'))![1]!;
  writeFileSync(
    path.join(go, 'go.mod'),
    `module own\n\ngo 1.23\n\nrequire ${module} v0.0.0\n\nreplace ${module} => ${GO}\n`,
  );
  writeFileSync(path.join(go, 'main.go'), OWN_GO.replace('MODULE', module));
  await runCommand('go', ['-C', go, 'mod', 'tidy']);
  await runCommand('go', ['-C', go, 'vet', './...']);
  const fromGo = await runCommand('go', ['-C', go, 'run', '.']);

  const python = path.join(scratch, 'own-python');
  expect(await write('python', path.join(python, 'shop'))).toMatchObject({ code: 0, stderr: '' });
  writeFileSync(path.join(python, 'own.py'), OWN_PYTHON);
  const env = { ...PYTHON_ENV, PYTHONPATH: `${PYTHON}:${python}` };
  const fromPython = await runCommand('python3', [path.join(python, 'own.py')], { env });

  const catalog = parseCatalog(readFileSync(shop, 'utf8'));
  const fromService = OWN_PAYLOADS.map(({ carrier, length, eta, gift }) => {
    const payload = { order_id: 'x'.repeat(length), carrier, eta_ms: eta, ...given({ gift }) };
    try {
      newIntent(catalog, 'shop.order.shipped', {
        ...{ idempotencyKey: 'k', occurredAt: 1_790_000_000_000, recipientUserIds: ['u'], payload },
      });
      return 'accepted';
    } catch (error) {
      return (error as InvalidIntentError).field;
    }
  });
  const refused = ['carrier', 'order_id', 'eta_ms', 'gift'].map((field) => `payload_json.${field}`);
  expect(fromService).toEqual(['accepted', ...refused, 'accepted']);
  expect(fromGo.split('\n')).toEqual(fromService);
  expect(fromPython.split('\n')).toEqual(fromService);
});

const OWN_PAYLOADS = [
  { carrier: 'dhl', length: 64, eta: 1, gift: true },
  { carrier: 'pigeon', length: 1, eta: 1, gift: true },
  { carrier: 'dhl', length: 65, eta: 1, gift: true },
  { carrier: 'dhl', length: 1, eta: 0, gift: true },
  { carrier: 'dhl', length: 1, eta: 1, gift: 'yes' },
  { carrier: 'dhl', length: 1, eta: 1, gift: null },
];

const OWN_GO = `package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"own/shop"

	intents "MODULE"
)

func main() {
	event := intents.Event{IdempotencyKey: "k", OccurredAt: time.UnixMilli(1790000000000)}
	var payloads []struct {
		Carrier string
		Length  int
		Eta     int64
		Gift    any
	}
	if err := json.Unmarshal([]byte(${JSON.stringify(JSON.stringify(OWN_PAYLOADS))}), &payloads); err != nil {
		panic(err)
	}
	for _, one := range payloads {
		payload := shop.ShopOrderShippedPayload{
			OrderID: strings.Repeat("x", one.Length), Carrier: one.Carrier, EtaMs: one.Eta,
		}
		if gift, isTyped := one.Gift.(bool); isTyped {
			payload.Gift = &gift
		} else if one.Gift != nil {
			payload.Further = map[string]any{"gift": one.Gift}
		}
		_, err := shop.NewShopOrderShipped(event, []string{"u"}, payload)
		var refusal *intents.InvalidIntentError
		if errors.As(err, &refusal) {
			fmt.Println(refusal.Field)
		} else {
			fmt.Println("accepted")
		}
	}
}
`;

const OWN_PYTHON = `
import json
from notificationintent import InvalidIntentError, publish_intent
from notificationintent.testing import MemoryStream
from shop.catalog import CATALOG
from shop.constructors import ShopOrderShippedPayload, new_shop_order_shipped

for one in json.loads('${JSON.stringify(OWN_PAYLOADS)}'):
    payload = ShopOrderShippedPayload(
        order_id="x" * one["length"], carrier=one["carrier"], eta_ms=one["eta"], gift=one["gift"]
    )
    try:
        intent = new_shop_order_shipped(
            payload, recipient_user_ids=["u"], idempotency_key="k", occurred_at=1790000000000
        )
        publish_intent(MemoryStream(CATALOG), intent)
        print("accepted")
    except InvalidIntentError as error:
        print(error.field)
`;

type Verdict =
  | { fingerprint: string; deliver_at_ms?: number; expires_at_ms?: number; traceparent?: string }
  | { code: string; names: string };

/** A client as a process that answers a line with a line, in order. */
function startClient(command: string, args: readonly string[], env: Record<string, string> = {}) {
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['pipe', 'pipe', 'inherit'] });
  child.stdin.on('error', () => undefined);
  const answers = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return {
    async ask(question: string): Promise<Verdict> {
      child.stdin.write(`${question}\n`);
      const { done, value } = await answers.next();
      if (done) throw new Error(`${command} has ended`);
      return JSON.parse(value) as Verdict;
    },
    stop: () => child.stdin.end(),
  };
}

const verdictOn = (intent: NotificationIntent): Verdict => ({
  fingerprint: fingerprintOf(intent),
  ...given({ deliver_at_ms: intent.deliverAtMs, expires_at_ms: intent.expiresAtMs }),
  ...given({ traceparent: intent.traceparent }),
});

function verdictOfService(fields: EntryFields): Verdict {
  const parsed = parseIntent('1-0', fields);
  if (parsed.ok) return verdictOn(parsed.intent);
  const { failureCode, failureMessage } = parsed.malformed;
  return { code: failureCode, names: fieldNamedIn(failureMessage) ?? 'the entry' };
}

/** The package's own stream. It takes text: entries of other bytes are not asked about. */
async function verdictOfTypeScript(fields: EntryFields): Promise<Verdict | undefined> {
  const texts = fields.flat().map((bytes) => bytes.toString());
  if (fields.flat().some((bytes, index) => !bytes.equals(Buffer.from(texts[index]!)))) return undefined;
  const stream = createMemoryStream();
  try {
    await stream.xadd('s', '*', ...texts);
    return { ...verdictOn(stream.published[0]!.intent), fingerprint: stream.published[0]!.fingerprint };
  } catch (error) {
    if (!(error instanceof InvalidIntentError)) throw error;
    return { code: error.code, names: error.field ?? 'the entry' };
  }
}

/** Entries that are asked about before the answers are looked at. */
const BATCH = 200;

test('I70 Go, Python, TypeScript and the service decide every entry alike, with one fingerprint', async () => {
  const verdicts = path.join(scratch, 'verdicts');
  await runCommand('go', ['-C', GO, 'build', '-o', verdicts, './internal/verdicts']);
  const clients = {
    go: startClient(verdicts, []),
    python: startClient('python3', [path.join(PYTHON, 'tests', 'verdicts.py')], PYTHON_ENV),
  };
  const seed = Number(process.env['FUZZ_SEED'] ?? Date.now() % 2 ** 31);
  const entries = fc.sample(
    fc.oneof({ weight: 1, arbitrary: intentEntry }, { weight: 2, arbitrary: strangeIntent }),
    { numRuns: CASES, seed },
  );
  const seen = new Map<string, number>();
  const differences: object[] = [];
  try {
    for (let from = 0; from < entries.length; from += BATCH) {
      await Promise.all(
        entries.slice(from, from + BATCH).map(async (entry) => {
          const fields = entry.map((field) => field.map((bytes) => bytes.toString('base64')));
          const question = JSON.stringify({ fields });
          const service = verdictOfService(entry);
          const [go, python, typescript = service] = await Promise.all([
            clients.go.ask(question),
            clients.python.ask(question),
            verdictOfTypeScript(entry),
          ]);
          const kind = 'code' in service ? service.code : 'accepted';
          seen.set(kind, (seen.get(kind) ?? 0) + 1);
          const verdicts = { service, go, python, typescript };
          if (new Set(Object.values(verdicts).map((verdict) => JSON.stringify(sorted(verdict)))).size > 1)
            differences.push({ entry: entry.map((field) => field.map(String)), ...verdicts });
        }),
      );
    }
  } finally {
    for (const client of Object.values(clients)) client.stop();
  }
  expect({ seed, count: differences.length, first: differences.slice(0, 3) }).toEqual({
    ...{ seed, count: 0, first: [] },
  });
  // The entries are strange, and not so strange that the first check decides all of them.
  for (const kind of ['accepted', 'invalid_envelope', 'invalid_recipients', 'invalid_payload']) {
    expect([kind, (seen.get(kind) ?? 0) > CASES / 50]).toEqual([kind, true]);
  }
});

const sorted = (verdict: Verdict): [string, string | number][] => Object.entries(verdict).sort();

describe('published from another language', () => {
  const slot = slotOfTests();
  beforeAll(() => slot.startService());

  const redisUrl = () => `redis://${slot.endpoints.redis.host}:${slot.endpoints.redis.port}/${slot.slot}`;

  async function expectDelivered(notificationId: string): Promise<void> {
    expect(notificationId).toMatch(/^\d+-\d+$/);
    await bothPublished(slot, [notificationId]);
  }

  test('I70 an intent published from Go is delivered', async () => {
    const example = ['-C', GO, 'run', './examples/publish', redisUrl(), 'user-1', 'from-go'];
    await expectDelivered(await runCommand('go', example));
  });

  test('I70 an intent published from Python is delivered', async () => {
    const packages = path.join(scratch, 'python');
    const requirements = path.join(PYTHON, 'requirements.txt');
    const install = '-m pip install --quiet --disable-pip-version-check --no-warn-script-location'.split(' ');
    await runCommand('python3', [...install, '--require-hashes', '--target', packages, '-r', requirements], {
      env: { PIP_ROOT_USER_ACTION: 'ignore' },
    });
    const example = [path.join(PYTHON, 'examples', 'publish.py'), redisUrl(), 'user-1', 'from-python'];
    const env = { ...PYTHON_ENV, PYTHONPATH: `${PYTHON}${path.delimiter}${packages}` };
    await expectDelivered(await runCommand('python3', example, { env }));
  });
});
