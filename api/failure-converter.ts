/**
 * Keeps messages and stack traces of failures in payloads, where the codec encrypts them. Part of the workflow bundle
 * as well; used only when there is a key, for without one the Web UI would show nothing but "Encoded failure".
 */
import { DefaultFailureConverter } from '@temporalio/common';

export const failureConverter = new DefaultFailureConverter({ encodeCommonAttributes: true });
