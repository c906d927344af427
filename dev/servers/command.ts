import { spawn } from 'node:child_process';

/** Options of {@link runCommand}. */
export interface CommandOptions {
  /** Added to the inherited environment. */
  env?: Readonly<Record<string, string>>;
  /** Run as this user and group (root only). */
  user?: UserIds | undefined;
  /** Killed after this many milliseconds; default: no limit. */
  timeoutMs?: number;
}

/** Numeric ids of a system user. */
export interface UserIds {
  uid: number;
  gid: number;
}

/**
 * Runs a command without a shell and returns its output (stdout and stderr, trimmed).
 *
 * @throws Error `<command>: not found`, or with the exit code and the end of the output, or that it took too long.
 */
export function runCommand(
  command: string,
  args: readonly string[],
  { env = {}, user, timeoutMs }: CommandOptions = {},
): Promise<string> {
  return new Promise((resolve, reject) => {
    const [file, fileArgs] = withEnvironment(command, args, env);
    const child = spawn(file, fileArgs, {
      stdio: ['ignore', 'pipe', 'pipe'],
      // A user other than ours may not be allowed into our working directory, and initdb insists on knowing its own.
      cwd: '/',
      ...user,
      // Not the option `timeout`: after a failed spawn its timer keeps the process alive until it fires.
      ...(timeoutMs === undefined ? {} : { signal: AbortSignal.timeout(timeoutMs), killSignal: 'SIGKILL' }),
    });
    let output = '';
    const collect = (chunk: Buffer): void => {
      output += chunk.toString('utf8');
    };
    child.stdout.on('data', collect);
    child.stderr.on('data', collect);
    child.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') reject(new Error(`${command}: not found`));
      else if (error.name === 'AbortError') reject(new Error(`${command} took longer than ${timeoutMs} ms`));
      else reject(error);
    });
    child.once('close', (code, signal) => {
      if (code === 0) return resolve(output.trim());
      const reason = code === null ? `was ended by ${signal}` : `failed with exit code ${code}`;
      reject(new Error(`${command} ${reason}${tail(output, 10)}`));
    });
  });
}

/** Whether the command exists and ends with exit code 0. */
export function commandSucceeds(
  command: string,
  args: readonly string[],
  options?: CommandOptions,
): Promise<boolean> {
  return runCommand(command, args, options).then(
    () => true,
    () => false,
  );
}

/**
 * Adds variables through `env`(1), which becomes the command itself: `dev/` neither reads nor copies the environment
 * of the service, which is the configuration's business.
 */
export function withEnvironment(
  command: string,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): [file: string, args: string[]] {
  const assignments = Object.entries(env).map(([name, value]) => `${name}=${value}`);
  return assignments.length === 0 ? [command, [...args]] : ['env', [...assignments, command, ...args]];
}

/** The last lines of an output, ready to be appended to a message. An empty output gives an empty text. */
export function tail(output: string, lines: number): string {
  const text = output.trim();
  return text === '' ? '' : `:\n${text.split('\n').slice(-lines).join('\n')}`;
}
