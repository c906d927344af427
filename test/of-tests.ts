/** What the tests of a file or of a `describe` share: made once before them or before each of them, and ended in reverse order. */

type Make<Made> = () => Made | Promise<Made>;
type End<Made> = (made: Made) => unknown;

/** How to end what was made and has not ended yet, the oldest first. */
const ends: (() => unknown)[] = [];

function share<Made extends object>(
  before: typeof beforeAll,
  after: typeof afterAll,
  make: Make<Made>,
  end: End<Made> = () => undefined,
): Made {
  const shared = {} as Made;
  before(async () => {
    Object.assign(shared, await make());
    ends.push(() => end(shared));
  });
  // Hooks run in their order, so the first one to run ends what was made last.
  after(() => ends.pop()?.());
  return shared;
}

// Jest's functions belong to the file of tests that runs, and this module to all of them: they are looked up in each call.

/** Made once, before hooks and tests that follow. It must not be a class with methods. */
export const ofTests = <Made extends object>(make: Make<Made>, end?: End<Made>): Made =>
  share(beforeAll, afterAll, make, end);
/** Made before each test. */
export const ofEachTest = <Made extends object>(make: Make<Made>, end?: End<Made>): Made =>
  share(beforeEach, afterEach, make, end);

/** The two ways to share what a function with parameters makes. */
export const shared = <Args extends unknown[], Made extends object>(
  make: (...args: Args) => Made | Promise<Made>,
  end?: End<Made>,
) => ({
  ofTests: (...args: Args): Made => ofTests(() => make(...args), end),
  ofEachTest: (...args: Args): Made => ofEachTest(() => make(...args), end),
});
