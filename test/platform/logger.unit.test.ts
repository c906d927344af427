/** What never gets into a log (workers/logger.ts). */
import { createLogger } from '../../workers/logger.ts';

const SECRETS = ['password', 'token', 'taskToken', 'authorization', 'email', 'dsn', 'resolved_email'];

function logged(fields: object): string {
  const lines: string[] = [];
  createLogger('info', { write: (line) => void lines.push(line) }).info(fields, 'told');
  return lines.join('');
}

test.each(SECRETS)('I34 the value of %s is left out, also within an object', (name) => {
  expect(logged({ [name]: 'secret-1', kept: 'seen' })).toMatch(/"kept":"seen"/);
  expect(logged({ [name]: 'secret-1' })).not.toContain('secret-1');
  expect(logged({ route: { [name]: 'secret-2' } })).not.toContain('secret-2');
});
