/** What never gets into a log (workers/logger.ts). */
import { Writable } from 'node:stream';
import { createLogger, logDestination } from '../../workers/logger.ts';

const SECRETS = ['password', 'token', 'taskToken', 'authorization', 'email', 'dsn', 'resolved_email'];

function logged(fields: object): string {
  const lines: string[] = [];
  createLogger('info', { write: (line) => void lines.push(line) }).info(fields, 'told');
  return lines.join('');
}

test.each(SECRETS)('I34 security-18 the value of %s is left out, at every depth', (name) => {
  expect(logged({ [name]: 'secret-1', kept: 'seen' })).toMatch(/"kept":"seen"/);
  let fields: object = { [name]: 'secret-1', kept: 'seen' };
  for (let depth = 0; depth < 20; depth += 1) {
    expect([depth, logged(fields)]).not.toEqual([depth, expect.stringContaining('secret-1')]);
    fields = depth % 2 === 0 ? { within: fields } : { list: [fields] };
  }
});

test('I34 security-18 an error is logged with its stack, without rows of PostgreSQL and commands to Redis', () => {
  const error = Object.assign(new Error('duplicate key'), {
    code: '23505',
    detail: 'Key (email)=(alice@example.com) already exists.',
    // As ioredis leaves it on the error of a command, and on those of a transaction that was called off.
    command: { name: 'xadd', args: ['mail:delivery_commands', 'alice@example.com'] },
    previousErrors: [Object.assign(new Error('OOM'), { command: { name: 'eval', args: ['alice'] } })],
    nested: { token: 'secret-2' },
  });
  for (const name of ['error', 'err', 'reason']) {
    const line = logged({ [name]: error });
    expect(line).toMatch(/"message":"duplicate key","stack":"Error: duplicate key\\n.*logger.unit.test/);
    expect(line).toContain('23505');
    expect(line).not.toMatch(/alice|secret-2/);
  }
  expect(logged(error)).not.toMatch(/alice|secret-2/);
});

test('I34 an object that holds itself, and what says itself how it looks, are logged', () => {
  const loop: Record<string, unknown> = { kept: 'seen', at: new Date(0), url: new URL('http://a/b') };
  loop['self'] = loop;
  expect(logged(loop)).toContain('"kept":"seen","at":"1970-01-01T00:00:00.000Z","url":"http://a/b"');
});

/** What a logger writes to a stream that is a terminal, or is not. */
async function written(isTerminal: boolean, isProduction: boolean): Promise<string> {
  let text = '';
  const stream = new Writable({
    decodeStrings: false,
    write: (chunk: string, _, done) => {
      text += chunk;
      done();
    },
  });
  const terminal = Object.assign(stream, { isTTY: isTerminal, hasColors: () => false });
  const destination = await logDestination(terminal as unknown as NodeJS.WriteStream, isProduction);
  const log = createLogger('info', destination);
  log.warn({ shard: 2, token: 'secret-3', reason: '\u001b[2J' }, 'account callbacks wait\u001b[2J');
  return text;
}

test('I34 on a terminal, a log line is what a person reads, and nothing in it steers the terminal', async () => {
  const line = await written(true, false);
  expect(line).toMatch(/^\[\d\d:\d\d:\d\d\.\d{3}\] WARN: account callbacks wait.* \{"shard":2,.*\}\n$/);
  expect(line).not.toContain('secret-3');
  expect(line).not.toContain('\u001b');
  expect(line).not.toContain('galaxy-notify');
});

test.each([
  { where: 'in production', isTerminal: true, isProduction: true },
  { where: 'where no user reads along', isTerminal: false, isProduction: false },
])('I34 $where, a log line is JSON', async ({ isTerminal, isProduction }) => {
  expect(JSON.parse(await written(isTerminal, isProduction))).toMatchObject({
    level: 'warn',
    service: 'galaxy-notify',
    shard: 2,
    msg: expect.stringContaining('account callbacks wait') as string,
  });
});
