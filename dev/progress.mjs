/**
 * Lines of progress, the same for everything that takes long before a demo or a start. Plain JavaScript for Node 18 and
 * later, since `dev/install.mjs` needs them before anything is installed.
 */
const STILL_EVERY_MS = 15_000;

/**
 * Says that a step begins, and every 15 s that it goes on.
 *
 * @param {(line: string) => void} report
 * @param {string} doing what is done: `Building the server (about a minute, once)`.
 * @returns {(done: string) => void} to be called when the step is over: says what is done now, and how long it took.
 */
export function beginStep(report, doing) {
  const startedAt = Date.now();
  report(`${doing} ...`);
  const timer = setInterval(() => report(`${doing}: ${secondsSince(startedAt, 0)}`), STILL_EVERY_MS);
  timer.unref();
  return (done) => {
    clearInterval(timer);
    reportStep(report, startedAt, done);
  };
}

/**
 * Says in one line what is done, and how long it took.
 *
 * @param {(line: string) => void} report
 * @param {number} startedAt milliseconds since the epoch.
 * @param {string} done
 */
export function reportStep(report, startedAt, done) {
  report(`${secondsSince(startedAt, 1).padStart(8)}  ${done}`);
}

function secondsSince(startedAt, digits) {
  return `${((Date.now() - startedAt) / 1000).toFixed(digits)} s`;
}
