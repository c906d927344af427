/** When certificates of the configuration expire, and how that is said. */
import { generate } from 'selfsigned';
import { expiryOf } from '../../cli/check-secrets.ts';
import { certificateExpiries } from '../../config/certificates.ts';
import { createLoopbackCertificate } from '../../dev/stand-ins/certificate.ts';

const DAY_MS = 86_400_000;
const NOW = Date.parse('2026-11-23T12:00:00Z');

async function certificate(days: number, ca: boolean): Promise<string> {
  const { cert } = await generate([{ name: 'commonName', value: 'x' }], {
    keyType: 'ec',
    notBeforeDate: new Date(NOW - 100 * DAY_MS),
    notAfterDate: new Date(NOW + days * DAY_MS),
    extensions: [{ name: 'basicConstraints', cA: ca, critical: true }],
  });
  return cert;
}

const daysLeft = (text: string | undefined) =>
  certificateExpiries([{ variable: 'V', path: '/v', text }]).map(
    ({ expiresAt }) => (expiresAt - NOW) / DAY_MS,
  );

test('I61 security-19 a chain is good as long as all of it is, authorities as long as one of them is', async () => {
  const [leaf, otherLeaf] = [await certificate(10, false), await certificate(30, false)];
  const [authority, nextAuthority] = [await certificate(5, true), await certificate(1_000, true)];
  expect(daysLeft(leaf)).toEqual([10]);
  expect(daysLeft(otherLeaf + leaf)).toEqual([10]);
  expect(daysLeft(leaf + authority)).toEqual([5]);
  expect(daysLeft(authority + nextAuthority)).toEqual([1_000]);
});

test('I61 security-19 what holds no certificate has no expiry', async () => {
  const { keyPem } = await createLoopbackCertificate();
  for (const text of [
    undefined,
    '',
    's3cret',
    keyPem,
    '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----',
  ]) {
    expect(daysLeft(text)).toEqual([]);
  }
});

test.each([
  [15, 'ok', /^expires in 15 d, 2026-12-08T12:00:00.000Z: \/etc\/ca.pem$/],
  [13, 'warn', /^expires in 13 d/],
  [0.5, 'warn', /^expires in 12 h/],
  [-3, 'error', /^expired 3 d ago, 2026-11-20/],
])('I61 security-19 with %d days left, doctor says %s', (days, status, detail) => {
  const expiry = {
    variable: 'NOTIFICATION_REDIS_CA_FILE',
    path: '/etc/ca.pem',
    expiresAt: NOW + days * DAY_MS,
  };
  const found = expiryOf(expiry, NOW);
  expect(found.status).toBe(status);
  expect(found.detail).toMatch(detail);
  if (status !== 'ok') expect(found.hint).toContain('/etc/ca.pem, which NOTIFICATION_REDIS_CA_FILE names');
});
