/** Runs of the command line in one process: each has its own arguments, environment, streams and signals. What is on a terminal. */
import { execFileSync } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { PassThrough, Writable } from 'node:stream';
import { Command } from 'commander';
import { EXIT, action, untilInterrupted } from '../../cli/command.ts';
import { invoke, onStop } from '../../cli/invocation.ts';
import { printJson, printable, report, tableOf } from '../../cli/output.ts';
import { run } from '../../cli/program.ts';
import { shellWord } from '../../api/text.ts';
import { startCommand } from '../command-line.ts';

const ENTRY = JSON.stringify({
  ...{ notification_type: 'game.turn.ready', producer: 'game_master', audience_kind: 'user' },
  ...{ idempotency_key: 'k', occurred_at_ms: '1790000000000', recipient_user_ids_json: '["user-1"]' },
  payload_json: '{"game_id":"g","game_name":"G","turn_number":1}',
});

/** A run with these streams, for what {@link startCommand} does not offer. */
const shellWith = (args: string[], stdout: Writable) =>
  Object.assign(new EventEmitter(), {
    argv: ['node', 'galaxy-notify', ...args],
    ...{ env: {}, stdin: new PassThrough(), stdout, stderr: new PassThrough() },
  });

test('two runs at the same time keep their input, their output and their exit codes apart', async () => {
  const input = new PassThrough();
  const first = startCommand(['intents', 'validate', '--json', '-'], {}, { input });
  const second = startCommand(['intents', 'validate', '-'], {}, { input: new PassThrough().end('7') });
  const refused = await second.ended;
  expect(refused).toMatchObject({ code: 1, stderr: '1 intent, 1 would be refused\n' });
  expect(first.written).toEqual({ stdout: '', stderr: '' });
  input.end(ENTRY);
  const valid = await first.ended;
  expect(valid).toMatchObject({ code: 0, stderr: '1 intent, 0 would be refused\n' });
  expect(JSON.parse(valid.stdout)).toMatchObject({ items: [{ type: 'game.turn.ready' }] });
  expect(refused).toEqual(await second.ended);
});

test.each([
  ['tokens', 'register', 'AT:a1b2c3'],
  ['tokens', 'verify', 'AT:a1b2c3', '--nonce=a', '--code=b'],
  ['tokens', 'check', 'AT:a1b2c3'],
  ['tokens', 'delete', '--yes', 'AT:a1b2c3'],
  ['subscriptions', 'trust', 'smp://print:a1b2c3@router.example'],
  ['doctor', '--router', 'smp://print:a1b2c3@router.example'],
])('security-19 %s %s takes no secret from the list of processes', async (...args) => {
  const env = {
    NOTIFICATION_REDIS_MASTER_ADDR: '127.0.0.1:1',
    NOTIFICATION_POSTGRES_PRIMARY_DSN: 'postgres://127.0.0.1:1/none',
    TEMPORAL_ADDRESS: '127.0.0.1:1',
  };
  const { code, stderr } = await startCommand(args, env).ended;
  expect(stderr).toContain('the list of processes shows arguments: give -, and');
  expect(stderr).not.toContain('a1b2c3');
  expect(code).toBe(2);
});

test('a run leaves the exit code and the signals of the process alone', async () => {
  const before = [process.exitCode, process.listenerCount('SIGINT'), process.listenerCount('SIGTERM')];
  expect((await startCommand(['no-such-command'], {}).ended).code).toBe(2);
  expect((await startCommand(['bridge', 'status'], {}).ended).code).toBe(1);
  expect([process.exitCode, process.listenerCount('SIGINT'), process.listenerCount('SIGTERM')]).toEqual(
    before,
  );
});

test('help and usage errors of subcommands go to the streams of the run, as wide as its terminal', async () => {
  const narrow = await startCommand(['intents', 'publish', '--help'], {}, { columns: 90 }).ended;
  const wide = await startCommand(['intents', 'publish', '--help'], {}, { columns: 200 }).ended;
  expect(narrow).toMatchObject({ code: 0, stderr: '' });
  expect(narrow.stdout.split('\n').length).toBeGreaterThan(wide.stdout.split('\n').length);
  const wrong = await startCommand(['mobile', 'send'], {}).ended;
  expect(wrong).toMatchObject({ code: 2, stdout: '' });
  expect(wrong.stderr).toMatch(/^error: required option '--user <id>' not specified\n/);
});

test('I40 security-15 nothing of others acts on the terminal: tables, JSON and errors of usage', async () => {
  const acting = '\u001b\u009b\u200e\u200f\u061c\u202e\u2066';
  const raw = new RegExp(`[${acting}]`, 'u');
  expect(tableOf(['MESSAGE'], [[printable(acting)]])).not.toMatch(raw);
  expect(printable(acting)).toBe('\\u001b\\u009b\\u200e\\u200f\\u061c\\u202e\\u2066');
  const output = new PassThrough();
  await invoke(shellWith([], output), async () => printJson({ [acting]: acting }));
  const json = String(output.read());
  expect(json).not.toMatch(raw);
  expect(JSON.parse(json)).toEqual({ [acting]: acting });
  const { stderr } = await startCommand([`no-such-${acting}`], {}).ended;
  expect(stderr).toContain('\\u001b\\u009b');
  expect(stderr).not.toMatch(raw);
});

test('a table has colors in a terminal that shows them, unless NO_COLOR is set', async () => {
  const validate = (env: Record<string, string>, columns?: number) =>
    startCommand(['intents', 'validate', '-'], env, {
      input: new PassThrough().end(ENTRY),
      ...(columns === undefined ? {} : { columns }),
    }).ended;
  const bold = '\u001b[1mFILE\u001b[22m';
  const xterm = { TERM: 'xterm-256color' };
  expect((await validate(xterm, 80)).stdout).toContain(bold);
  expect((await validate({ FORCE_COLOR: '1' })).stdout).toContain(bold);
  expect((await validate({ ...xterm, NO_COLOR: '1' }, 80)).stdout).not.toContain('\u001b');
  expect((await validate(xterm)).stdout).not.toContain('\u001b');
});

test('I40 colors, links, combining marks and wide characters do not shift the next column', () => {
  const link = '\u001b]8;;http://ui.test\u0007one\u001b]8;;\u0007';
  const red = '\u001b[31mdead_letter\u001b[39m';
  const cells = [link, red, 'cafe\u0301', '通知', '\u{1f4e8}'];
  const lines = tableOf(
    ['NAME', 'END'],
    cells.map((cell) => [cell, '|']),
  ).split('\n');
  expect(lines).toEqual([
    'NAME         END',
    ...[10, 2, 9, 9, 11].map((spaces, at) => `${cells[at]}${' '.repeat(spaces)}|`),
  ]);
});

test('U1 a command that is shown to be pasted holds what others chose as one word', () => {
  for (const text of ['push:user:user-1', "email:user:o'hara", 'push:user:$(touch x); `y` "z" &'])
    expect(execFileSync('sh', ['-c', `printf %s ${shellWord(text)}`], { encoding: 'utf8' })).toBe(text);
});

test.each([
  ['EPIPE', 0],
  ['ENOSPC', 1],
])('a run whose output fails with %s ends with %i, also while its command waits', async (code, exitCode) => {
  const broken = new Writable({
    write: (_chunk, _encoding, done) => done(Object.assign(new Error(code), { code })),
  });
  const shell = shellWith(['intents', 'validate', '-'], broken);
  broken.write('a line');
  expect(await run(shell)).toBe(exitCode);
});

test('a second Ctrl-C ends a run whose command waits, and what it reports goes to its own streams', async () => {
  let now = 0;
  jest.spyOn(performance, 'now').mockImplementation(() => now);
  const shell = shellWith([], new PassThrough());
  const ended = invoke(shell, async () => {
    onStop((signal) => report(`heard ${signal}`), ['SIGINT']);
    await new Promise(() => undefined);
  });
  shell.emit('SIGINT', 'SIGINT');
  expect(String(shell.stderr.read())).toBe('heard SIGINT\n');
  now += 2_000;
  shell.emit('SIGINT', 'SIGINT');
  expect(await ended).toBe(130);
});

test.each([
  ['did not come to its end', EXIT.failed, 130],
  ['was done nevertheless', EXIT.done, 0],
])('a command that Ctrl-C interrupts and that %s ends with its code', async (_, code, exitCode) => {
  const shell = shellWith([], new PassThrough());
  const wait = action(() => untilInterrupted((signal) => once(signal, 'abort').then(() => code)));
  const ended = invoke(shell, () => wait(new Command()));
  shell.emit('SIGINT', 'SIGINT');
  expect(await ended).toBe(exitCode);
});

test('npm passes Ctrl-C on: a run that stops in order still hears the second signal', async () => {
  const shell = shellWith([], new PassThrough());
  const stopped = Promise.withResolvers<void>();
  const ended = invoke(shell, async () => {
    await new Promise<unknown>((resolve) => onStop(resolve));
    await stopped.promise;
  });
  shell.emit('SIGINT', 'SIGINT');
  // Without a listener, the second signal would kill a process.
  expect(shell.listenerCount('SIGINT')).toBe(1);
  shell.emit('SIGINT', 'SIGINT');
  stopped.resolve();
  expect(await ended).toBe(0);
  expect([shell.listenerCount('SIGINT'), shell.listenerCount('SIGTERM')]).toEqual([0, 0]);
});
