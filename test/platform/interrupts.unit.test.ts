/** Programs that are asked to end, through npm and npx as well. */
import { onInterrupt } from '../../api/interrupts.ts';

let now = 0;
let stopListening = (): void => undefined;
beforeEach(() => {
  now = 5_000;
  jest.spyOn(performance, 'now').mockImplementation(() => now);
});
afterEach(() => {
  stopListening();
  jest.restoreAllMocks();
});

function listen(signals?: readonly ('SIGINT' | 'SIGTERM')[]): string[] {
  const heard: string[] = [];
  stopListening = onInterrupt(
    (signal) => heard.push(signal),
    () => heard.push('again'),
    signals,
  );
  return heard;
}

test('Ctrl-C that npm passes on is one request; a second press is another', () => {
  const heard = listen();
  process.emit('SIGINT', 'SIGINT');
  now += 40;
  process.emit('SIGINT', 'SIGINT');
  expect(heard).toEqual(['SIGINT']);
  now += 1_000;
  process.emit('SIGINT', 'SIGINT');
  process.emit('SIGTERM', 'SIGTERM');
  expect(heard).toEqual(['SIGINT', 'again', 'again']);
});

test('signals that are not asked for are left to others, and nothing is heard after the end', () => {
  const others = process.listenerCount('SIGTERM');
  const heard = listen(['SIGINT']);
  expect(process.listenerCount('SIGTERM')).toBe(others);
  process.emit('SIGINT', 'SIGINT');
  stopListening();
  now += 2_000;
  process.once('SIGINT', () => undefined);
  process.emit('SIGINT', 'SIGINT');
  expect(heard).toEqual(['SIGINT']);
});
