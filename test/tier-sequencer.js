/** Tests without servers first: they give a result soon. Within a tier, what took longest the last time goes first. */
import Sequencer from '@jest/test-sequencer';

const isQuick = ({ context }) => ['unit', 'workflow'].includes(context.config.displayName?.name);

export default class TierSequencer extends Sequencer {
  async sort(tests) {
    const sorted = await super.sort(tests);
    return [...sorted.filter(isQuick), ...sorted.filter((test) => !isQuick(test))];
  }
}
