/** Debian's. */
export const FLATC_VERSION: string;
/** @returns its version; undefined when there is none. */
export function installedFlatc(): string | undefined;
export function checkFlatBuffers(): string[];
export function generateFlatBuffers(): string[];
