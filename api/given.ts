type Given<T> = {
  [Name in keyof T as undefined extends T[Name] ? never : Name]: T[Name];
} & {
  [Name in keyof T as undefined extends T[Name] ? Name : never]?: Exclude<T[Name], undefined>;
};

/** @returns the properties that have a value: one without is absent, and not undefined. */
export const given = <T extends object>(properties: T): Given<T> =>
  Object.fromEntries(Object.entries(properties).filter(([, value]) => value !== undefined)) as Given<T>;
