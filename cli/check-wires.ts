/** Whether connections are encrypted, and both ends proven. */
import type { Config } from '../config/load.ts';
import { openWires } from '../config/wire.ts';
import type { Check, Diagnosis } from './checks.ts';
import { ok, warn } from './checks.ts';
import { countOf } from './output.ts';

export const wireCheck = (config: Pick<Config, 'production' | 'wires'>): Check => [
  'connections',
  () => diagnosisOf(config),
];

function diagnosisOf({ production, wires }: Pick<Config, 'production' | 'wires'>): Diagnosis {
  const open = openWires(wires);
  const counted = `${open.length} of ${countOf(wires.length, 'connection')}`;
  const unneeded = wires.flatMap(({ gaps, isAllowed, insecure }) =>
    isAllowed && gaps.length === 0 && insecure !== undefined ? [insecure] : [],
  );
  if (open.length > 0 && production) {
    return warn(
      `${counted} open, by ${open.map(({ insecure }) => `${insecure}=true`).join(', ')}`,
      open.flatMap(({ gaps }) => gaps).join('; '),
    );
  }
  if (open.length > 0) {
    return ok(`${counted} open, which production refuses: ${open.map(({ name }) => name).join(', ')}`);
  }
  return unneeded.length > 0
    ? warn('all are encrypted and proven', `remove ${unneeded.join(', ')}: nothing needs it any more`)
    : ok('all are encrypted and proven');
}
