/**
 * For the programs that symbol configuration is pushed to (api/symbol-config/push-openapi.yaml): takes pushes, keeps the
 * list over restarts, and always has something to work with.
 *
 * ```ts
 * const store = fileSymbolStore('/var/lib/alerts/symbols.json');
 * const receiver = await createAlertReceiver({ store, log, secrets: [process.env.SIGNING_SECRET] });
 * // on PUT, with any HTTP server, the body as it came:
 * const { status, answer } = await receiver.answer({ headers: request.headers, body });
 * // where it is used:
 * if (receiver.allows('BTC')) ...
 * ```
 *
 * After a start it works with the list of its store, else with what the registry says when asked, else with less:
 * a collector with its static defaults, an alert without a filter. The first push replaces any of these.
 */
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { jsonIn } from '../../api/text.ts';
import type { SymbolMetadata, SymbolPush, TargetKind } from '../../api/symbol-config/push.ts';
import { PUSH_SCHEMAS, isPushWebhookId } from '../../api/symbol-config/push.ts';
import { within } from '../../api/within.ts';
import type { Answer, CallerProof, ReceiverLog, SignedCall } from '../webhook-proof.ts';
import { answerTo, createProofCheck, problemIn } from '../webhook-proof.ts';

/** A start continues with less when the store, or the registry, takes longer, ms. */
const START_LIMIT_MS = 10_000;

/** Where a receiver keeps its list. */
export interface SymbolStore {
  /** What `save` was given last; undefined when there is nothing. What cannot be read may throw. */
  load(): Promise<unknown>;
  save(push: SymbolPush): Promise<void>;
}

export type ReceiverOptions<Kind extends TargetKind> = CallerProof & {
  store: SymbolStore;
  /**
   * Asks the registry for the current list; called once, at a start with nothing in the store. The operator of the
   * receiver knows how to reach it: the notification service only pushes.
   */
  askRegistry?: () => Promise<SymbolPush<Kind>>;
  /** Longest wait for the store at a start, and for the registry, ms; default: START_LIMIT_MS. */
  startLimitMs?: number;
  log: ReceiverLog;
};

/** Where the list in use comes from. */
export type SymbolSource = 'push' | 'store' | 'registry' | 'defaults' | 'allow_all';

export type Receipt =
  | { outcome: 'applied' | 'unchanged'; version: number }
  | { outcome: 'older_version'; message: string; heldVersion: number }
  | { outcome: 'empty_symbols' | 'invalid_push'; message: string };

export interface SymbolReceiver<Kind extends TargetKind> {
  /** What is in use now. Without a version: defaults or everything; without symbols: everything. */
  held(): { source: SymbolSource; version?: number; symbols?: SymbolPush<Kind>['symbols'] };
  /** Whether a symbol is enabled, as far as is known. */
  allows(symbol: string): boolean;
  /**
   * Applies the parsed body of a push, from any caller. The same list any number of times is as good as once; an older one and an empty one
   * change nothing.
   *
   * @throws what the store throws; nothing is applied then.
   */
  apply(body: unknown): Promise<Receipt>;
  /** Checks who sent a push, applies it, and says what to answer with: a status and JSON. Never rejects. */
  answer(call: SignedCall): Promise<Answer>;
}

/**
 * @param options.defaults what to work with until a list is known.
 * @throws Error for an invalid secret, or without secrets.
 */
export function createCollectorReceiver(
  options: ReceiverOptions<'price_collector'> & { defaults: readonly SymbolMetadata[] },
): Promise<SymbolReceiver<'price_collector'>> {
  return createReceiver('price_collector', options, {
    source: 'defaults',
    symbols: [...options.defaults],
  });
}

/** Until a list is known, it allows every symbol. @throws Error as {@link createCollectorReceiver} does. */
export function createAlertReceiver(
  options: ReceiverOptions<'price_alert'>,
): Promise<SymbolReceiver<'price_alert'>> {
  return createReceiver('price_alert', options, { source: 'allow_all' });
}

async function createReceiver<Kind extends TargetKind>(
  kind: Kind,
  { store, askRegistry, log, startLimitMs = START_LIMIT_MS, ...proof }: ReceiverOptions<Kind>,
  fallback: ReturnType<SymbolReceiver<Kind>['held']>,
): Promise<SymbolReceiver<Kind>> {
  type Held = ReturnType<SymbolReceiver<Kind>['held']>;
  const whatIsWrongWith = createProofCheck(proof);
  // Pushes are applied one after the other: the store must end with the newest.
  let lastPush: Promise<unknown> = Promise.resolve();
  /** What was applied last is in the store. */
  let isKept = false;
  let held: Held = (await fromStore()) ?? (await fromRegistry()) ?? fallback;
  log.info({ kind, source: held.source, version: held.version }, 'symbols at start');

  async function fromStore(): Promise<Held | undefined> {
    try {
      const stored = await within(startLimitMs, store.load());
      if (stored === undefined) return undefined;
      const push = usable(stored);
      isKept = true;
      return { source: 'store', ...push };
    } catch (error) {
      log.error({ kind, reason: reasonOf(error) }, 'stored symbols cannot be used');
      return undefined;
    }
  }

  async function fromRegistry(): Promise<Held | undefined> {
    if (!askRegistry) return undefined;
    try {
      const push = usable(await within(startLimitMs, askRegistry()));
      await keepIfPossible(push);
      return { source: 'registry', ...push };
    } catch (error) {
      log.error({ kind, reason: reasonOf(error) }, 'symbols cannot be had from the registry');
      return undefined;
    }
  }

  /** A list that cannot be kept, for a full disk, is better than none; the next push keeps it. */
  async function keepIfPossible(push: SymbolPush<Kind>): Promise<void> {
    try {
      const saved = store.save(push);
      lastPush = saved.catch(() => undefined);
      await within(startLimitMs, saved);
      isKept = true;
    } catch (error) {
      log.error({ kind, reason: reasonOf(error) }, 'symbols could not be kept');
    }
  }

  /** @throws Error when it is no list, or an empty one. */
  function usable(value: unknown): SymbolPush<Kind> {
    const push = PUSH_SCHEMAS[kind].parse(value) as SymbolPush<Kind>;
    if (push.symbols.length === 0) throw new Error('the list is empty');
    return push;
  }

  async function applyNext(body: unknown): Promise<Receipt> {
    const parsed = PUSH_SCHEMAS[kind].safeParse(body);
    if (!parsed.success) return refuse('invalid_push', problemIn(parsed.error));
    const push = parsed.data as SymbolPush<Kind>;
    if (push.symbols.length === 0) return refuse('empty_symbols', 'an empty list is refused');
    const { version } = push;
    if (held.version !== undefined && version < held.version) {
      const message = `version ${held.version} is held and newer than version ${version}`;
      log.info({ kind, version, held_version: held.version }, 'older symbols ignored');
      return { outcome: 'older_version', message, heldVersion: held.version };
    }
    const isKnown = isKept && version === held.version && isDeepStrictEqual(push.symbols, held.symbols);
    if (!isKnown) {
      await store.save(push);
      isKept = true;
      log.info({ kind, version, symbols: push.symbols.length }, 'symbols applied');
    }
    held = { source: 'push', ...push };
    return { outcome: isKnown ? 'unchanged' : 'applied', version };
  }

  function refuse(outcome: 'empty_symbols' | 'invalid_push', message: string): Receipt {
    log.error({ kind, held_version: held.version, reason: message }, 'symbols refused');
    return { outcome, message };
  }

  function apply(body: unknown): Promise<Receipt> {
    const turn = lastPush.then(() => applyNext(body));
    lastPush = turn.catch(() => undefined);
    return turn;
  }

  return {
    held: () => held,
    allows: (symbol) =>
      held.symbols?.some((known) => (typeof known === 'string' ? known : known.symbol) === symbol) ?? true,
    apply,
    answer: (call) =>
      answerTo<Receipt | { outcome: 'not_authentic'; message: string }>(
        async () => {
          const doubt = whatIsWrongWith(call, isPushWebhookId);
          if (doubt === undefined) return apply(jsonIn(call.body));
          log.error({ kind, reason: doubt }, 'symbols refused');
          return { outcome: 'not_authentic', message: doubt };
        },
        STATUSES,
        'list',
        (reason) => log.error({ kind, reason }, 'symbols could not be kept'),
      ),
  };
}

const STATUSES = {
  applied: 200,
  unchanged: 200,
  not_authentic: 401,
  older_version: 409,
  empty_symbols: 422,
  invalid_push: 422,
};

/** Keeps the list in a file, which is replaced as a whole: a crash leaves the old list or the new one. */
export function fileSymbolStore(file: string): SymbolStore {
  return {
    async load() {
      try {
        return JSON.parse(await readFile(file, 'utf8')) as unknown;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
        throw error;
      }
    },
    async save(push) {
      await mkdir(path.dirname(file), { recursive: true });
      // A receiver saves one list after the other. A draft that a crash leaves is written over by the next.
      const draft = `${file}.draft`;
      await writeFile(draft, JSON.stringify(push), { flush: true });
      await rename(draft, file);
    },
  };
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
