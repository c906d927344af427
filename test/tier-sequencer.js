/** Quick tests first: whoever waits for them knows soon. Within a tier, what took longest the last time goes first. */
import Sequencer from '@jest/test-sequencer';

const isUnit = ({ context }) => context.config.displayName?.name === 'unit';

export default class TierSequencer extends Sequencer {
  async sort(tests) {
    const sorted = await super.sort(tests);
    return [...sorted.filter(isUnit), ...sorted.filter((test) => !isUnit(test))];
  }
}
