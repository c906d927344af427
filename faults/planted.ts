/** Values that can be told from anything else, to be looked for afterwards where they must not be. */

const MARK = 'pl4nted';

/** Begins every address of this kind. */
export const plantedMailPrefix = (of: 'user' | 'admin'): string => `${MARK}.${of}-`;
export const plantedMail = (of: 'user' | 'admin', index: number): string =>
  `${plantedMailPrefix(of)}${index}@mail.example.com`;
export const plantedText = (what: string): string => `${MARK}-${what}-text`;
export const plantedTokenPrefix = `${MARK}-device-token-`;
