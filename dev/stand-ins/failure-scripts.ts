/** The failures that a stand-in was told to have: whom they hit, how often, and which comes next. */

interface Script<Failure> {
  failure: Failure;
  /** How many requests fail; default: all until `heal`. */
  times?: number | undefined;
  /** Only each n-th request that it fits fails; default: each one. */
  every?: number | undefined;
}

export interface FailureScripts<Failure> {
  /** Of several that fit a request the oldest that is not used up decides. @param subject default: every one. */
  add(script: Script<Failure>, subject: string | undefined): void;
  /** The failure of a request about these subjects, any of which a script may name; counts as one of its times. */
  next(...subjects: string[]): Failure | undefined;
  heal(): void;
}

export function createFailureScripts<Failure>(): FailureScripts<Failure> {
  let scripts: {
    failure: Failure;
    subject: string | undefined;
    left: number;
    every: number;
    fitted: number;
  }[] = [];
  return {
    add: ({ failure, times = Number.POSITIVE_INFINITY, every = 1 }, subject) =>
      void scripts.push({ failure, subject, left: times, every, fitted: 0 }),
    next(...subjects) {
      const fits = (only: string | undefined): boolean => only === undefined || subjects.includes(only);
      const script = scripts.find((candidate) => {
        if (candidate.left === 0 || !fits(candidate.subject)) return false;
        candidate.fitted += 1;
        return candidate.fitted % candidate.every === 0;
      });
      if (script) script.left -= 1;
      return script?.failure;
    },
    heal: () => {
      scripts = [];
    },
  };
}
