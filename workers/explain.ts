/** What a person is told when the process cannot start. */
import { SchemaNewerThanCodeError } from '../migrations/migrate.ts';
import { ConfigError } from '../config/load.ts';
import { SetupError } from './endpoints.ts';
import { ProbePortError } from './probes.ts';
import { DependencyError } from './resources.ts';

/** Errors whose message says all there is to say; a stack trace would only hide it. */
const SELF_EXPLANATORY = [ConfigError, DependencyError, ProbePortError, SchemaNewerThanCodeError, SetupError];

export function explain(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return SELF_EXPLANATORY.some((kind) => error instanceof kind)
    ? error.message
    : (error.stack ?? error.message);
}
