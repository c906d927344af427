/** Which errors are tried again (design of the subscription lifecycle, "Error classes"). */
import { isRetried, isUnknownToNotificationRouter } from '../../activities/subscription/router/ports.ts';
import type { RouterError } from '../../activities/subscription/router/ports.ts';

const error = (text: string): RouterError => {
  const [source, code] = text.split(' ') as [RouterError['source'], string];
  // The detail of an error makes no difference.
  return { source, code, detail: 'TIMEOUT' };
};

const ROUTER_CODES = ['AUTH', 'QUOTA', 'SESSION', 'BLOCK', 'CMD', 'BLOCKED', 'SERVICE', 'STORE', 'INTERNAL'];

test.each([...['BROKER TIMEOUT', 'BROKER NETWORK', 'BROKER HOST', 'BROKER VERSION', 'AGENT INACTIVE']])(
  'N2 %s is tried again',
  (text) => expect(isRetried(error(text))).toBe(true),
);

test.each([
  ...ROUTER_CODES.flatMap((code) => [`NTF ${code}`, `SMP ${code}`]),
  ...['BROKER RESPONSE', 'BROKER UNEXPECTED', 'BROKER NO_SERVICE', 'BROKER TRANSPORT', 'STORE INTERNAL'],
  ...['AGENT INTERNAL', 'AGENT PROHIBITED'],
  // The codes that are tried again, from another side.
  ...['NTF TIMEOUT', 'SMP NETWORK', 'BROKER INACTIVE', 'NTF toString'],
])('N2 N6 %s is permanent', (text) => expect(isRetried(error(text))).toBe(false));

test.each([
  ['NTF AUTH', true],
  ['SMP AUTH', false],
  ['NTF QUOTA', false],
  ['BROKER AUTH', false],
])('N4 %s: the notification router does not know it: %s', (text, expected) => {
  expect(isUnknownToNotificationRouter(error(text))).toBe(expected);
});
