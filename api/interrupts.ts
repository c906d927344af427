/** How a program notices that it is asked to end, once and again. */

const SIGNALS = ['SIGINT', 'SIGTERM'] as const;
export type StopSignal = (typeof SIGNALS)[number];

/** Where signals come from: a process, or what stands for one. */
export interface SignalSource {
  on(signal: StopSignal, listener: (signal: StopSignal) => void): unknown;
  off(signal: StopSignal, listener: (signal: StopSignal) => void): unknown;
}

/**
 * Ctrl-C reaches every process of the terminal, and npm and npx pass it on to those that they have started: one press
 * comes as two signals. So what follows the first one so closely is the same request, ms.
 */
const ECHO_MS = 1_000;

/**
 * Listens for requests to end the program.
 *
 * @param first is called with the first signal. @param again with one that comes at least a second later: the user does not
 * want to wait. Default: exits with 130.
 * @param signals default: SIGINT and SIGTERM. @param source default: this process.
 * @returns what stops listening.
 */
export function onInterrupt(
  first: (signal: StopSignal) => void,
  again: () => void = () => process.exit(130),
  signals: readonly StopSignal[] = SIGNALS,
  source: SignalSource = process,
): () => void {
  let firstAt: number | undefined;
  const listener = (signal: StopSignal): void => {
    if (firstAt === undefined) {
      firstAt = performance.now();
      first(signal);
    } else if (performance.now() - firstAt >= ECHO_MS) again();
  };
  for (const signal of signals) source.on(signal, listener);
  return () => {
    for (const signal of signals) source.off(signal, listener);
  };
}
