/** What the peers use of DBOS, so that a type check needs no package of this folder. */
declare module '@dbos-inc/dbos-sdk' {
  type Work<Args extends unknown[], Result> = (...args: Args) => Promise<Result>;

  export const DBOS: {
    setConfig(config: {
      name: string;
      systemDatabaseUrl: string;
      systemDatabasePoolSize: number;
      logLevel: string;
    }): void;
    launch(): Promise<void>;
    registerWorkflow<Args extends unknown[], Result>(
      work: Work<Args, Result>,
      options: { name: string },
    ): Work<Args, Result>;
    runStep<Result>(work: () => Promise<Result>, options: { name: string }): Promise<Result>;
    startWorkflow<Args extends unknown[], Result>(
      work: Work<Args, Result>,
      options: { workflowID: string },
    ): (...args: Args) => Promise<{ getResult(): Promise<Result> }>;
  };
}
