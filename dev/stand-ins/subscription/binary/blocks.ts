/** A stream of blocks of one size over TLS. */
import type { TLSSocket } from 'node:tls';

/** What a peer may leave unread before it is cut off, bytes. */
const MAX_UNREAD_BYTES = 8 * 1024 * 1024;

/** Calls back for each block. An error in the callback ends the connection. */
export function onBlocks(socket: TLSSocket, blockBytes: number, receive: (block: Buffer) => void): void {
  let pending: Buffer[] = [];
  let bytes = 0;
  socket.on('data', (chunk: Buffer) => {
    pending.push(chunk);
    bytes += chunk.length;
    if (bytes < blockBytes) return;
    let all = Buffer.concat(pending);
    while (all.length >= blockBytes && !socket.destroyed) {
      const block = all.subarray(0, blockBytes);
      all = all.subarray(blockBytes);
      try {
        receive(block);
      } catch (error) {
        socket.destroy(error as Error);
      }
    }
    pending = [all];
    bytes = all.length;
  });
}

/**
 * Hears nothing more of a peer that has not read what was written. For one side of a connection only: two that wait for
 * each other would wait for good.
 */
export function hearReaders(socket: TLSSocket): void {
  socket.on('data', () => {
    if (!socket.writableNeedDrain || socket.isPaused()) return;
    socket.pause();
    socket.once('drain', () => socket.resume());
  });
}

/** Cuts off a peer that does not read. */
export function writeBounded(socket: TLSSocket, bytes: Buffer): void {
  if (socket.destroyed) return;
  socket.write(bytes);
  if (socket.writableLength > MAX_UNREAD_BYTES) socket.destroy();
}
