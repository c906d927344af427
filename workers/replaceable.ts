/** Something that is replaced while others hold it. */

/**
 * Holds what is in use now. Others are given `facade`, which has the same members: each access goes to the current one,
 * so a call that has begun ends on the one that it began on.
 */
export class Replaceable<T extends object> {
  readonly facade: T;
  #current: T;

  constructor(first: T) {
    this.#current = first;
    // An object of the same class without its own members: a proxy must not hide those of its target.
    this.facade = new Proxy(Object.create(Object.getPrototypeOf(first) as object) as T, {
      has: (_, name) => name in this.#current,
      get: (_, name) => {
        const member: unknown = Reflect.get(this.#current, name, this.#current);
        return typeof member === 'function' ? (member.bind(this.#current) as unknown) : member;
      },
    });
  }

  get current(): T {
    return this.#current;
  }

  /** @returns the one that was in use before. */
  replace(next: T): T {
    const before = this.#current;
    this.#current = next;
    return before;
  }
}
