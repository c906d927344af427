/** Engines of the embedded Temporal by the version of its server, with the release of the CLI that has it. */
export const ENGINES: Readonly<Record<'1.29' | '1.32', { cli: string }>>;

export function unpackKnown(archive: Buffer, known: string, folder: string): Promise<void>;
