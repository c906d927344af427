/**
 * Calls to Temporal on a connection that was closed meanwhile. The client retries a call after a wait that `close` does
 * not end; the channel then throws where nobody can catch it, and the process of the user ends.
 */
import type { Interceptor } from '@grpc/grpc-js';
import { InterceptingCall, Metadata, status } from '@grpc/grpc-js';

type InterceptingCallInterface = ConstructorParameters<typeof InterceptingCall>[0];

/** Makes a retry on a closed connection fail its call. To be set behind the interceptor that retries. */
export const failWhenClosed: Interceptor = (options, nextCall) => {
  try {
    return new InterceptingCall(nextCall(options));
  } catch (error) {
    return new InterceptingCall(callThatFails((error as Error).message));
  }
};

function callThatFails(details: string): InterceptingCallInterface {
  const ignore = () => undefined;
  return {
    // Not among the codes that are retried.
    start: (_, listener) =>
      listener?.onReceiveStatus?.({ code: status.CANCELLED, details, metadata: new Metadata() }),
    sendMessage: ignore,
    sendMessageWithContext: ignore,
    startRead: ignore,
    halfClose: ignore,
    cancelWithStatus: ignore,
    getPeer: () => '',
    getAuthContext: () => null,
  };
}
