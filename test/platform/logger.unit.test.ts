/** What never gets into a log (workers/logger.ts). */
import { createLogger } from '../../workers/logger.ts';

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

test('I34 security-18 an error is logged with its stack, and without rows that PostgreSQL quotes', () => {
  const error = Object.assign(new Error('duplicate key'), {
    code: '23505',
    detail: 'Key (email)=(alice@example.com) already exists.',
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
