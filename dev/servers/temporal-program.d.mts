/** The release of the Temporal CLI that is downloaded. */
export const CLI: string;

export function unpackKnown(archive: Buffer, known: string, folder: string): Promise<void>;
