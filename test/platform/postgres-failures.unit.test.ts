/** What a failed statement is called, by its SQLSTATE. */
import { ApplicationFailure } from '@temporalio/activity';
import pg from 'pg';
import { finalIfRefused, postgresFailure } from '../../activities/postgres.ts';

function serverError(code: string, message = 'no'): pg.DatabaseError {
  const error = new pg.DatabaseError(message, message.length, 'error');
  error.code = code;
  return error;
}

test.each([
  ['PostgresRefused', 'a violated constraint', '23514'],
  ['PostgresRefused', 'a key that is taken', '23505'],
  ['PostgresRefused', 'a number out of range', '22003'],
  ['PostgresRefused', 'text that is no text', '22021'],
  ['PostgresRefused', 'an index row that is too large', '54000'],
  ['PostgresRefused', 'one row twice in one statement', '21000'],
  ['PostgresUnusable', 'no permission', '42501'],
  ['PostgresUnusable', 'no such table', '42P01'],
  ['PostgresUnusable', 'no such column', '42703'],
  ['PostgresUnusable', 'a read-only server', '25006'],
  ['PostgresUnusable', 'a full disk', '53100'],
  ['PostgresUnusable', 'a wrong password', '28P01'],
  ['PostgresUnusable', 'no such database', '3D000'],
  ['PostgresUnavailable', 'a statement that took too long', '57014'],
  ['PostgresUnavailable', 'a server that shuts down', '57P01'],
  ['PostgresUnavailable', 'a database that takes no connections', '55000'],
  ['PostgresUnavailable', 'too many connections', '53300'],
  ['PostgresUnavailable', 'a deadlock', '40P01'],
])('I24 security-22 %s: %s', (type, _what, code) => {
  const failure = postgresFailure('a_statement', serverError(code));
  expect(failure).toMatchObject({ type, nonRetryable: false, details: [{ sqlState: code }] });
  expect(failure.message).toBe(`PostgreSQL did not run a_statement: no (SQLSTATE ${code})`);
});

test('I24 security-22 a broken connection has no SQLSTATE and is waited for', () => {
  const failure = postgresFailure('a_statement', new Error('Connection terminated unexpectedly'));
  expect(failure).toMatchObject({ type: 'PostgresUnavailable', nonRetryable: false });
});

test('I34 security-22 a refused value is not quoted', () => {
  const quoted = serverError('22P02', 'invalid input syntax for type integer: "a@b.example"');
  expect(postgresFailure('a_statement', quoted).message).not.toContain('a@b.example');
});

test('I24 security-22 only a refusal is final for callers that ask', () => {
  expect(finalIfRefused(postgresFailure('a_statement', serverError('23514')))).toMatchObject({
    type: 'PostgresRefused',
    nonRetryable: true,
    details: [{ sqlState: '23514' }],
  });
  const readOnly = postgresFailure('a_statement', serverError('25006'));
  expect(finalIfRefused(readOnly)).toBe(readOnly);
  expect(readOnly).toBeInstanceOf(ApplicationFailure);
});
