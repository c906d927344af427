/** The properties of a type that have a value: those that may be null or undefined may be absent. */
export type Given<T> = {
  [Name in keyof T as null extends T[Name] ? never : undefined extends T[Name] ? never : Name]: T[Name];
} & {
  [Name in keyof T as null extends T[Name] ? Name : undefined extends T[Name] ? Name : never]?: NonNullable<
    T[Name]
  >;
};

/** @returns the properties that have a value: one that is null or undefined is absent. */
export const given = <T extends object>(properties: T): Given<T> =>
  Object.fromEntries(
    Object.entries(properties).filter(([, value]) => value !== null && value !== undefined),
  ) as Given<T>;
