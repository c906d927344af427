/** What the tests of a file or of a `describe` share: made before the first of them, or anew for each, and ended in reverse order. */

/** How to end what was made and has not ended yet, the oldest first. */
const ends: (() => unknown)[] = [];

const made =
  (before: typeof beforeAll, after: typeof afterAll) =>
  <Made extends object>(make: () => Made | Promise<Made>, end: (made: Made) => unknown = () => undefined): Made => {
    const shared = {} as Made;
    before(async () => {
      Object.assign(shared, await make());
      ends.push(() => end(shared));
    });
    // Hooks run in their order, so the first one to run ends what was made last.
    after(() => ends.pop()?.());
    return shared;
  };

/** Made once, before hooks and tests that follow. It must not be a class with methods. */
export const ofTests = made(beforeAll, afterAll);
/** Made anew for each test. */
export const ofEachTest = made(beforeEach, afterEach);
