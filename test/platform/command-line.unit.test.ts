/**
 * The command line without any server: help of every command, what a mistyped word is answered with, completion; types, catalogs and
 * `intents validate`; runs in one process, each with its own arguments, environment, streams and signals; what is on a terminal.
 */
import { execFileSync } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { PassThrough, Writable } from 'node:stream';
import { Command } from 'commander';
import { EXIT, action, untilInterrupted } from '../../cli/command.ts';
import { commandsBelow, pathOf } from '../../cli/definition.ts';
import { invoke, onStop } from '../../cli/invocation.ts';
import { printJson, printable, report, tableOf } from '../../cli/output.ts';
import { completionFor, programOf, run } from '../../cli/program.ts';
import { given } from '../../api/given.ts';
import { shellWord } from '../../api/text.ts';
import { startCommand } from '../command-line.ts';
import { NOTIFICATION_TYPES } from '../intent/galaxy.ts';
import { scratchFolder } from '../scratch.ts';

const { dir: folder, write: fileOf } = scratchFolder('command-line');
const cli = (args: string[], env: Record<string, string> = {}) => startCommand(args, env).ended;

const INTENT = {
  ...{ notification_type: 'game.turn.ready', producer: 'game_master', audience_kind: 'user' },
  ...{ idempotency_key: 'game-7/turn-54', occurred_at_ms: '1790000000000' },
  recipient_user_ids_json: '["user-1","user-2"]',
  payload_json: '{"turn_number":54,"game_name":"Andromeda","game_id":"game-7"}',
};
const ENTRY = JSON.stringify(INTENT);

/** A run with its streams, for what {@link startCommand} does not offer. */
const shellWith = (args: string[] = [], stdout: Writable = new PassThrough()) =>
  Object.assign(new EventEmitter(), {
    argv: ['node', 'galaxy-notify', ...args],
    ...{ env: {}, stdin: new PassThrough(), stdout, stderr: new PassThrough() },
  });

const LEAVES = commandsBelow(programOf()).filter(({ commands }) => commands.length === 0);

test('kinds-5 mandatory options are marked in the help of their command, others are not', () => {
  const marked = LEAVES.map((command) =>
    [...command.helpInformation().matchAll(/^ +(\S.*?) \(required\)/gm)].map(([, flags]) => flags),
  );
  expect(marked).toEqual(
    LEAVES.map(({ options }) => options.filter(({ mandatory }) => mandatory).map(({ flags }) => flags)),
  );
  expect(marked.flat().length).toBeGreaterThan(5);
});

/** Names of commands that change nothing. */
const LOOKS =
  'list show status statistics waiting failed overdue doctor top why views completion mcp check sample fbs clients validate sql';

/** They bring in what a producer or a user would, or prepare servers: what they do is no change of what is under way. */
const WITHOUT_AUTHOR = [
  'setup',
  'intents publish',
  'mobile send',
  'callbacks append',
  // They speak to a database of a producer, which has no row for it.
  'outbox relay',
];

test('U7 every command that changes something asks who wants it', () => {
  const anonymous = LEAVES.filter((command) => !LOOKS.split(' ').includes(command.name()))
    .filter(({ options }) => !options.some(({ long }) => long === '--requested-by'))
    .map(pathOf);
  expect(anonymous.sort()).toEqual([...WITHOUT_AUTHOR].sort());
});

test('I40 help and version of the program, and a line without a command', async () => {
  const help = await cli(['--help']);
  expect(help).toMatchObject({ code: 0, stderr: '', stdout: expect.stringMatching(/doctor[^]*Exit codes:/) });
  expect(await cli(['--version'])).toMatchObject({ code: 0, stdout: '0.1.0\n' });
  expect(await cli([])).toMatchObject({ code: 2, stdout: '' });
});

test('I40 every command explains itself with examples', () => {
  for (const command of LEAVES) {
    let help = '';
    command.configureOutput({ writeOut: (text) => (help += text) }).outputHelp();
    expect(help).toMatch(/Examples:\n {2}galaxy-notify [^]*galaxy-notify --help/);
    expect(help).not.toContain('Exit codes:');
    expect([pathOf(command), command.description()]).not.toContain('');
  }
});

const TURN = 'intents publish game.turn.ready';
const FIELDS = '--key k --field game_id=g --field game_name=A --field turn_number=3';

test.each([
  ['notificaions list', 'Did you mean notifications?'],
  ['notifications lsit', 'Did you mean list?'],
  ['notifications list --statsu open', 'Did you mean --status?'],
  ['notifications list --status deadletter', 'Allowed choices are open, settled, dead_letter.'],
  ['why user-1 --type game.turn.redy', "argument 'game.turn.redy' is invalid. did you mean game.turn.ready?"],
  [
    'intents publish game.turn.redy --sample',
    "value 'game.turn.redy' is invalid for argument 'type'. did you mean game.turn.ready?",
  ],
  ['channels pause sms', "value 'sms' is invalid for argument 'channel'. Allowed choices are push, email."],
  [TURN, 'give --key, or --sample'],
  [`${TURN} ${FIELDS}`, 'recipient_user_ids_json is required for audience_kind user'],
  [`${TURN} ${FIELDS} --to u --field turn_number=x`, 'payload_json field turn_number: '],
  ['notifications show abc', 'abc'],
  ['notifications list --since yesterday', 'yesterday'],
])('I40 %s is answered in the words that were typed', async (line, answer) => {
  const { code, stdout, stderr } = await cli(line.split(' '));
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
  expect(stderr).toContain(answer);
  expect(stderr).not.toContain('    at ');
});

/** What bash proposes at the end of a command line. */
function proposed(...words: string[]): string[] {
  const typed = ['galaxy-notify', ...words].map((word) => `'${word}'`).join(' ');
  const ask = `COMP_WORDS=(${typed}); COMP_CWORD=${words.length}; _galaxy_notify; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const output = execFileSync('bash', ['-c', `${completionFor(programOf(), 'bash')}\n${ask}`], {
    encoding: 'utf8',
  });
  return output.split('\n').filter((word) => word !== '');
}

test('U6 bash completes commands, their options, and what an option may be', () => {
  expect(proposed('notif')).toEqual(['notifications']);
  expect(proposed('notifications', '')).toEqual(expect.arrayContaining(['list', 'show', 'cancel', '--json']));
  expect(proposed('notifications', 'list', '--st')).toEqual(['--status']);
  expect(proposed('--json', 'notifications', 'list', '--status', 'd')).toEqual(['dead_letter']);
  expect(proposed('channels', 'pause', 'e')).toEqual(['email']);
  expect(proposed('views', '--sa')).toEqual(['--save']);
  // What only its author knows is left to the shell.
  expect(proposed('notifications', 'list', '--key', '')).toEqual([]);
});

const SHOP = 'catalog/shop.yaml';

test('I76 check names every fault, and what would break those who know an older catalog', async () => {
  const text = readFileSync(SHOP, 'utf8');
  const wrong = fileOf('wrong.yaml', text.replace('carrier: { type: string', 'carrier: { type: text'));
  const other = fileOf('other.yaml', text.replace('producer: billing', 'producer: finance'));

  expect(await cli(['catalog', 'check', SHOP])).toMatchObject({ code: 0, stdout: '' });
  expect(await cli(['catalog', 'check', wrong])).toMatchObject({
    code: 1,
    stdout: expect.stringContaining('types.shop.order.shipped.payload.properties.carrier'),
  });
  const against = await cli(['catalog', 'check', other, '--against', SHOP, '--json']);
  expect(JSON.parse(against.stdout)).toEqual({
    problems: ['types.billing.payment.failed.producer: was billing, is finance'],
  });
  const missing = await cli(['catalog', 'check', path.join(folder, 'none.yaml')]);
  expect(missing).toMatchObject({ code: 2, stderr: expect.stringContaining('cannot read') });
});

test('I76 the sample is a valid catalog, and fbs prints its tables', async () => {
  const { stdout } = await cli(['catalog', 'sample']);
  expect((await cli(['catalog', 'check', fileOf('sample.yaml', stdout)])).code).toBe(0);
  expect((await cli(['catalog', 'fbs', SHOP])).stdout).toContain(
    'table OrderShippedEvent {\n  order_id: string;\n  /// Milliseconds since the Unix epoch.\n  eta_ms: long;\n}',
  );
});

test.each([
  ['typescript', 'catalog.ts', 'export const newShopOrderShipped', undefined],
  ['go', 'catalog_generated.go', 'Gift    *bool          // optional', '2types'],
  ['python', 'constructors.py', 'gift: bool | None = None', 'my-types'],
])(
  'I76 clients in %s have optional fields, and a package that can be imported',
  async (language, file, field, unfit) => {
    const write = (name: string) =>
      cli(['catalog', 'clients', SHOP, '--language', language, '--out', path.join(folder, language, name)]);
    expect(await write('shop')).toMatchObject({ code: 0 });
    expect(readFileSync(path.join(folder, language, 'shop', file), 'utf8')).toContain(field);
    if (unfit !== undefined) expect((await write(unfit)).stderr).toContain(`no package ${unfit}`);
  },
);

test('I76 commands know the types of the configured catalog, and help with a name that is nearly one', async () => {
  const env = { NOTIFICATION_CATALOG_FILE: SHOP };
  const { stdout } = await cli(['intents', 'sample', '--json'], env);
  expect(JSON.parse(stdout)).toMatchObject({
    items: [
      { type: 'shop.order.shipped', producer: 'shop' },
      { type: 'shop.price.changed', producer: 'shop' },
      { type: 'billing.payment.failed' },
    ],
  });
  const said = (text: RegExp, code = 2) => ({ code, stderr: expect.stringMatching(text) as string });
  expect(await cli(['intents', 'sample', 'shop.order.shiped'], env)).toMatchObject(
    said(/did you mean shop\.order\.shipped\?/),
  );
  expect(await cli(['intents', 'sample', 'shop.order.shipped'])).toMatchObject(
    said(/without NOTIFICATION_CATALOG_FILE/),
  );
  const broken = { NOTIFICATION_CATALOG_FILE: fileOf('b.yaml', 'version: 2') };
  expect(await cli(['intents', 'sample'], broken)).toMatchObject(said(/CATALOG_FILE version: .*b\.yaml/, 1));
});

test('I70 validate decides as the service does', async () => {
  const validate = async (...files: string[]) => {
    const { code, stdout } = await cli(['intents', 'validate', '--json', ...files]);
    return { code, items: (JSON.parse(stdout) as { items: Record<string, unknown>[] }).items };
  };

  const same = {
    ...INTENT,
    recipient_user_ids_json: '["user-2", "user-1"]',
    payload_json: '{ "game_id": "game-7", "game_name": "Andromeda", "turn_number": 54 }',
  };
  const good = fileOf('good.json', JSON.stringify([INTENT, same]));
  const accepted = await validate(good, fileOf('one.json', ENTRY));
  expect(accepted.code).toBe(0);
  expect(accepted.items.map(({ intent }) => intent)).toEqual([1, 2, 1]);
  expect(new Set(accepted.items.map(({ fingerprint }) => fingerprint)).size).toBe(1);

  const bad = [{ ...INTENT, recipient_user_ids_json: '["a","a"]' }, { ...INTENT, producer: '\ud800' }, 7];
  const refused = await validate(fileOf('bad.json', JSON.stringify(bad)), fileOf('broken.json', '{"a":'));
  expect(refused.code).toBe(1);
  expect(refused.items.map(({ code }) => code)).toEqual([
    'invalid_recipients',
    ...Array<string>(3).fill('invalid_envelope'),
  ]);

  const refusedEntry = JSON.stringify({ ...INTENT, payload_json: INTENT.payload_json.replace('54', '"54"') });
  const input = new PassThrough().end(refusedEntry);
  const shown = await startCommand(['intents', 'validate', '-'], {}, { input }).ended;
  expect(shown.code).toBe(1);
  expect(shown.stdout).toMatch(/-\s+1\s+invalid_payload\s+payload_json field turn_number: /);
  expect(shown.stderr).toBe('1 intent, 1 would be refused\n');
  expect((await cli(['intents', 'validate', fileOf('none.json', '[]')])).code).toBe(3);
  const unreadable = await cli(['intents', 'validate', '/no/such/file']);
  expect(unreadable).toMatchObject({ code: 2, stdout: '' });
  expect(unreadable.stderr).toContain('cannot read /no/such/file');
});

test('I5 I37 there is a sample of each type, and every one of them is accepted by the checks', async () => {
  const { stdout } = await cli(['intents', 'sample', '--json']);
  const { items } = JSON.parse(stdout) as { items: { type: string }[] };
  expect(items.map(({ type }) => type)).toEqual(NOTIFICATION_TYPES);
  const one = await cli(['intents', 'sample', 'lobby.application.submitted']);
  expect(one.code).toBe(0);
  expect(one.stdout).toContain("redis-cli XADD notification:intents '*'");
  expect(one.stdout).toContain('--audience admin_email');
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
  const away = { NOTIFICATION_REDIS_MASTER_ADDR: '127.0.0.1:1', TEMPORAL_ADDRESS: '127.0.0.1:1' };
  const env = { ...away, NOTIFICATION_POSTGRES_PRIMARY_DSN: 'postgres://127.0.0.1:1/none' };
  const { code, stderr } = await cli(args, env);
  expect(stderr).toContain('the list of processes shows arguments: give -, and');
  expect(stderr).not.toContain('a1b2c3');
  expect(code).toBe(2);
});

test('a run leaves the exit code and the signals of the process alone', async () => {
  const ofProcess = () => [
    process.exitCode,
    ...['SIGINT', 'SIGTERM'].map((name) => process.listenerCount(name)),
  ];
  const before = ofProcess();
  expect((await cli(['no-such-command'])).code).toBe(2);
  expect((await cli(['bridge', 'status'])).code).toBe(1);
  expect(ofProcess()).toEqual(before);
});

test('help and usage errors of subcommands go to the streams of the run, as wide as its terminal', async () => {
  const helpIn = (columns: number) => startCommand(['intents', 'publish', '--help'], {}, { columns }).ended;
  const [narrow, wide] = [await helpIn(90), await helpIn(200)];
  expect(narrow).toMatchObject({ code: 0, stderr: '' });
  expect(narrow.stdout.split('\n').length).toBeGreaterThan(wide.stdout.split('\n').length);
  const wrong = await cli(['mobile', 'send']);
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
  const { stderr } = await cli([`no-such-${acting}`]);
  expect(stderr).toContain('\\u001b\\u009b');
  expect(stderr).not.toMatch(raw);
});

test('a table has colors in a terminal that shows them, unless NO_COLOR is set', async () => {
  const validate = (env: Record<string, string>, columns?: number) =>
    startCommand(['intents', 'validate', '-'], env, {
      input: new PassThrough().end(ENTRY),
      ...given({ columns }),
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
  const shell = shellWith();
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
  const shell = shellWith();
  const wait = action(() => untilInterrupted((signal) => once(signal, 'abort').then(() => code)));
  const ended = invoke(shell, () => wait(new Command()));
  shell.emit('SIGINT', 'SIGINT');
  expect(await ended).toBe(exitCode);
});

test('npm passes Ctrl-C on: a run that stops in order still hears the second signal', async () => {
  const shell = shellWith();
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
