/** Log lines as a person reads them on a terminal. */
import { prettyFactory } from 'pino-pretty';

export interface Terminal {
  hasColors: () => boolean;
  write: (text: string) => unknown;
}

/**
 * Each line is written immediately, so that the last line of a process that ends is seen. Control characters, which may come
 * from outside, do not reach the terminal.
 *
 * @returns where pino writes to.
 */
export function logLines(terminal: Terminal) {
  const readable = prettyFactory({
    colorize: terminal.hasColors(),
    ignore: 'service',
    singleLine: true,
    translateTime: 'UTC:HH:MM:ss.l',
  });
  return { write: (line: string) => void terminal.write(readable(line)) };
}
