/**
 * Loaded before the service (`node --import`): ends the process, as a power failure would, right after a step that changed
 * something outside of it, when the answer is there and nothing has been made of it yet. Which step, a file says that may
 * change while the process runs. Reads are no steps: a death after one leaves the outside as a death before it.
 */
import { AsyncResource } from 'node:async_hooks';
import diagnostics from 'node:diagnostics_channel';
import { readFileSync } from 'node:fs';
import { isMainThread } from 'node:worker_threads';

/** Of which activity, and after how many of its steps. `intake`: of what is no activity. */
export interface CrashRule {
  activity: string;
  step: number;
}

/** Commands of Redis that change nothing that lasts. */
const REDIS_READS = new Set(
  'eval_ro get mget exists ttl pttl type xinfo xread xreadgroup xautoclaim xlen xrange xrevrange xpending info config ping select client hello auth script command subscribe quit'.split(
    ' ',
  ),
);
const ROUTER_READS = new Set(['PING', 'TCHK', 'SCHK']);
const SQL_WRITE = /\b(insert|update|delete)\b/i;

// The sandbox's threads change nothing outside.
if (isMainThread) await install();

async function install(): Promise<void> {
  const [{ Context }, { default: pg }, { Redis }, { WorkflowClient }] = await Promise.all([
    import('@temporalio/activity'),
    import('pg'),
    import('ioredis'),
    import('@temporalio/client'),
  ]);
  const steps = new WeakMap<object, number>();
  const intake = {};
  let lastRule = '';

  const ruleText = (): string => readFileSync(process.env['CRASH_RULE']!, 'utf8');

  function activityNow(): { execution: object; activity: string } {
    try {
      const context = Context.current();
      return { execution: context, activity: context.info.activityType };
    } catch {
      // Not in an activity.
      return { execution: intake, activity: 'intake' };
    }
  }

  /** Call it where a step begins; what it returns, when its answer is there. */
  function begin(): () => void {
    const { execution, activity } = activityNow();
    return () => {
      const text = ruleText();
      if (text === '') return;
      // What counts is since the rule was made, for those that do not end.
      if (text !== lastRule) {
        lastRule = text;
        steps.delete(intake);
        steps.delete(execution);
      }
      const rule = JSON.parse(text) as CrashRule;
      if (rule.activity !== activity) return;
      const step = (steps.get(execution) ?? 0) + 1;
      steps.set(execution, step);
      if (step === rule.step) process.kill(process.pid, 'SIGKILL');
    };
  }

  const sendCommand = Redis.prototype.sendCommand;
  Redis.prototype.sendCommand = function (command, ...rest) {
    const answered = REDIS_READS.has(command.name.toLowerCase()) ? undefined : begin();
    if (answered) command.promise.then(answered, answered);
    return sendCommand.call(this, command, ...rest);
  };

  /** What a transaction has written is nothing before its end. */
  const inTransaction = new WeakSet<object>();
  function isStep(client: object, sql: string): boolean {
    if (/^\s*begin\b/i.test(sql)) inTransaction.add(client);
    else if (/^\s*(commit|rollback)\b/i.test(sql)) {
      inTransaction.delete(client);
      return /commit/i.test(sql);
    }
    return SQL_WRITE.test(sql) && !inTransaction.has(client);
  }

  const prototype = pg.Client.prototype as unknown as { query(...args: unknown[]): unknown };
  const query = prototype.query;
  prototype.query = function (...args) {
    const [statement] = args;
    const sql =
      typeof statement === 'string' ? statement : ((statement as { text?: string } | null)?.text ?? '');
    if (!isStep(this, sql)) return query.apply(this, args);
    const answered = begin();
    const last = args.at(-1);
    if (typeof last === 'function') {
      const callback = last as (...results: unknown[]) => unknown;
      args[args.length - 1] = (...results: unknown[]) => {
        answered();
        return callback(...results);
      };
      return query.apply(this, args);
    }
    const result = query.apply(this, args);
    if (result instanceof Promise) result.then(answered, answered);
    return result;
  };

  // A pool hands clients out to those who wait for one on behalf of any caller.
  const pool = pg.Pool.prototype as unknown as { connect(callback?: () => void): unknown };
  const connect = pool.connect;
  pool.connect = function (callback) {
    return connect.call(this, callback && AsyncResource.bind(callback));
  };

  type Call = (...args: unknown[]) => Promise<unknown>;
  function watch(owner: Record<string, Call>, name: string): void {
    const original = owner[name]!;
    owner[name] = function (...args) {
      const answered = begin();
      const result = original.apply(this, args);
      result.then(answered, answered);
      return result;
    };
  }
  const client = WorkflowClient.prototype as unknown as Record<string, Call>;
  for (const name of ['start', 'signalWithStart']) watch(client, name);
  const getHandle = WorkflowClient.prototype.getHandle as unknown as (
    ...args: unknown[]
  ) => Record<string, Call>;
  WorkflowClient.prototype.getHandle = function (this: object, ...args: unknown[]) {
    const handle = getHandle.apply(this, args);
    for (const name of ['signal', 'cancel']) watch(handle, name);
    return handle;
  } as unknown as typeof WorkflowClient.prototype.getHandle;

  // HTTP, of undici and of Node itself. Lookups are reads.
  const exchanges = new WeakMap<object, () => void>();
  const onStart = (message: unknown) => {
    const { request } = message as { request: { method: string } };
    if (request.method !== 'GET') exchanges.set(request, begin());
  };
  const onAnswer = (message: unknown) => exchanges.get((message as { request: object }).request)?.();
  // Routers, in their own protocol.
  diagnostics.tracingChannel('galaxy-notify:router-commands').subscribe({
    start(message) {
      const { commands } = message as { commands: readonly { command: { op: string } }[] };
      if (!commands.every(({ command }) => ROUTER_READS.has(command.op))) exchanges.set(message, begin());
    },
    asyncEnd: (message) => exchanges.get(message)?.(),
    end: () => undefined,
    asyncStart: () => undefined,
    error: () => undefined,
  });
  diagnostics.subscribe('undici:request:create', onStart);
  diagnostics.subscribe('undici:request:headers', onAnswer);
  diagnostics.subscribe('http.client.request.start', onStart);
  diagnostics.subscribe('http.client.response.finish', onAnswer);
}
