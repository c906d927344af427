/** Whether connections are encrypted, and both ends proven. */
import type { Config } from '../config/load.ts';
import { openWires, wireProblems } from '../config/wire.ts';
import type { Check, Diagnosis } from './checks.ts';
import { error, ok, warn } from './checks.ts';
import { countOf } from './output.ts';

export const wireCheck = (config: Pick<Config, 'production' | 'wires'>): Check => [
  'connections',
  () => diagnosisOf(config),
];

function diagnosisOf({ production, wires }: Pick<Config, 'production' | 'wires'>): Diagnosis {
  const open = openWires(wires);
  const counted = `${open.length} of ${countOf(wires.length, 'connection')}`;
  const unneeded = wires.flatMap(({ gaps, isAllowed, connection }) =>
    isAllowed && gaps.length === 0 && connection !== undefined ? [connection] : [],
  );
  const problems = wireProblems(wires);
  if (production && problems.length > 0) {
    return error(`${counted} open: the service refuses to start`, problems.join('; '));
  }
  if (open.length > 0 && production) {
    return warn(
      `${counted} open, by NOTIFICATION_INSECURE=${open.map(({ connection }) => connection).join(',')}`,
      open.flatMap(({ gaps }) => gaps).join('; '),
    );
  }
  if (open.length > 0) {
    return ok(`${counted} open, which production refuses: ${open.map(({ name }) => name).join(', ')}`);
  }
  return unneeded.length > 0
    ? warn(
        'all are encrypted and proven',
        `take ${unneeded.join(', ')} out of NOTIFICATION_INSECURE: nothing needs it any more`,
      )
    : ok('all are encrypted and proven');
}
