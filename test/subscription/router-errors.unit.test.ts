/** Which errors are tried again (design of the subscription lifecycle, "Error classes"). */
import {
  classOf,
  isRetried,
  isUnknownToNotificationRouter,
} from '../../activities/subscription/router/ports.ts';
import type { RouterError } from '../../activities/subscription/router/ports.ts';

const error = (text: string): RouterError => {
  const [source, code] = text.split(' ') as [RouterError['source'], string];
  return { source, code };
};

const ROUTER_CODES = ['AUTH', 'QUOTA', 'SESSION', 'BLOCK', 'CMD', 'BLOCKED', 'SERVICE', 'STORE', 'INTERNAL'];

test.each(['BROKER TIMEOUT', 'BROKER NETWORK', 'BROKER IO', 'AGENT INACTIVE', 'STORE BUSY'])(
  'N2 %s is temporary',
  (text) => {
    expect(classOf(error(text))).toBe('temporary');
    expect(isRetried(error(text))).toBe(true);
  },
);

test.each(['BROKER HOST', 'BROKER VERSION'])('N2 %s is an error of the host', (text) => {
  expect(classOf(error(text))).toBe('host');
  expect(isRetried(error(text))).toBe(true);
});

test.each([
  ...ROUTER_CODES.flatMap((code) => [`NTF ${code}`, `SMP ${code}`]),
  'BROKER RESPONSE',
  'BROKER UNEXPECTED',
  'BROKER NO_SERVICE',
  'BROKER TRANSPORT',
  'STORE INTERNAL',
  'AGENT INTERNAL',
  'AGENT PROHIBITED',
  // The codes that are tried again, from another side.
  'NTF TIMEOUT',
  'SMP NETWORK',
  'NTF BUSY',
  'BROKER INACTIVE',
  'NTF toString',
])('N2 N6 %s is permanent', (text) => {
  expect(classOf(error(text))).toBe('permanent');
  expect(isRetried(error(text))).toBe(false);
});

test('N2 the detail of an error makes no difference', () => {
  expect(classOf({ source: 'BROKER', code: 'NETWORK', detail: 'unknown CA' })).toBe('temporary');
  expect(classOf({ source: 'NTF', code: 'INTERNAL', detail: 'TIMEOUT' })).toBe('permanent');
});

test.each([
  ['NTF AUTH', true],
  ['SMP AUTH', false],
  ['NTF QUOTA', false],
  ['BROKER AUTH', false],
])('N4 %s: the notification router does not know it: %s', (text, expected) => {
  expect(isUnknownToNotificationRouter(error(text))).toBe(expected);
});
