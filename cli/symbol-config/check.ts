/** What can be wrong with symbol configuration: targets that stay behind. */
import { symbolOperations } from '../../client/symbol-config/symbols.ts';
import type { OperatorResources } from '../../client/resources.ts';
import type { CheckGroup, Diagnosis } from '../checks.ts';
import { ok, warn } from '../checks.ts';
import { countOf, durationOf } from '../output.ts';

/** At most so many targets are named. */
const NAMED = 5;

export const symbolChecks = (resources: OperatorResources): CheckGroup => [
  ['symbol targets: lists', () => diagnoseTargets(resources)],
];

async function diagnoseTargets(resources: OperatorResources): Promise<Diagnosis> {
  const { version, targets: all } = await symbolOperations(resources).status();
  const behind = all.filter(({ isBehind }) => isBehind);
  if (behind.length === 0) return ok(`all ${all.length} have version ${version}`);
  const named = behind.slice(0, NAMED).map(({ target, isGone, failingSince }) => {
    const name = isGone ? `${target} (gone)` : target;
    return failingSince ? `${name} for ${durationOf(Date.now() - failingSince.getTime())}` : name;
  });
  return warn(
    `${behind.length} of ${countOf(all.length, 'target')} behind: ${named.join(', ')}`,
    'see symbols status --behind; they are pushed to again until they acknowledge; take those that are gone out of the file of targets',
  );
}
