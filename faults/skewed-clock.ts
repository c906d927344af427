/** A process whose clock is wrong. */

/**
 * What Node loads before a program, as NODE_OPTIONS: its clock is so much ahead, or behind.
 *
 * @param ms negative for behind.
 */
export function clockAhead(ms: number): string {
  const source = `
  const Clock = Date;
  globalThis.Date = class extends Clock {
    constructor(...parts) { parts.length === 0 ? super(Clock.now() + ${ms}) : super(...parts); }
    static now() { return Clock.now() + ${ms}; }
  };`;
  return `--import=data:text/javascript,${encodeURIComponent(source)}`;
}
