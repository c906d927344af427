/**
 * Moves the wall clock of one running process alone: the function that tells the time is a page that the
 * kernel maps into every process (the vDSO), and a user who may trace a process may write to its copy of that page. So it
 * works for any program, linked in whatever way, and while it runs. Linux on x86-64 only.
 */
import { closeSync, openSync, readFileSync, readSync, readdirSync, writeSync } from 'node:fs';
import { eventually } from './eventually.ts';

/** Seconds by which the clock of the run differs from the machine's, see test/run-clock.ts. */
const shiftOfRun = () => Number(process.env['TEST_CLOCK_SHIFT'] ?? 0);

/** Room at the end of the page, behind the kernel's own code. */
const ROOM = 256;
/** Marks a copy that was changed before; then comes the shift in seconds, and the code. */
const MARK = 0x7465_7374_6d6f_7665n;
const [MARK_AT, SHIFT_AT, CODE_AT] = [0, 8, 16];

/** Asks the kernel, then adds the shift to what it said. Relative addresses are filled in by `assemble`. */
const HOOKS: Record<string, (number | 'shift')[]> = {
  __vdso_clock_gettime: [
    ...[0xb8, 0xe4, 0, 0, 0, 0x0f, 0x05], // mov eax, clock_gettime; syscall
    ...[0x85, 0xc0, 0x75, 0x13], // test eax, eax; jnz end
    ...[0x85, 0xff, 0x74, 0x05], // test edi, edi; jz add (CLOCK_REALTIME)
    ...[0x83, 0xff, 0x05, 0x75, 0x0a], // cmp edi, 5; jne end (CLOCK_REALTIME_COARSE)
    ...[0x48, 0x8b, 0x0d, 'shift' as const], // add: mov rcx, [shift]
    ...[0x48, 0x01, 0x0e, 0xc3], // add [rsi], rcx; end: ret
  ],
  __vdso_gettimeofday: [
    ...[0xb8, 0x60, 0, 0, 0, 0x0f, 0x05], // mov eax, gettimeofday; syscall
    ...[0x48, 0x85, 0xff, 0x74, 0x0a], // test rdi, rdi; jz end
    ...[0x48, 0x8b, 0x0d, 'shift' as const], // mov rcx, [shift]
    ...[0x48, 0x01, 0x0f, 0xc3], // add [rdi], rcx; end: ret
  ],
  __vdso_time: [
    ...[0x57, 0x31, 0xff, 0xb8, 0xc9, 0, 0, 0, 0x0f, 0x05, 0x5f], // push rdi; time(0); pop rdi
    ...[0x48, 0x03, 0x05, 'shift' as const], // add rax, [shift]
    ...[0x48, 0x85, 0xff, 0x74, 0x03, 0x48, 0x89, 0x07, 0xc3], // if (rdi) [rdi] = rax; ret
  ],
};

/**
 * Sets by how much the clock of a process and of all its children differs from the clock of the run (`TEST_CLOCK`), by
 * default the machine's. Processes that they fork later have the same clock; programs that they start do not.
 *
 * @param seconds may be negative; 0 puts it right.
 * @throws Error where the system does not allow it.
 */
export async function moveClock(pid: number, seconds: number): Promise<void> {
  if (process.platform !== 'linux' || process.arch !== 'x64')
    throw new Error(
      `clocks are moved on Linux on x86-64 only, this is ${process.platform} on ${process.arch}`,
    );
  // Fails where the system does not allow it. Later, a failure is repeated until the time is up.
  closeSync(openSync(`/proc/${pid}/mem`, 'r+'));
  await whileStopped(pid, (vdso) => patch(pid, vdso, BigInt(seconds + shiftOfRun())));
  // What it forked before it was stopped; later ones have its copy.
  for (const child of childrenOf(pid)) await moveClock(child, seconds).catch(ignoreEnded(child));
}

const childrenOf = (pid: number): number[] =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && parentOf(name) === pid)
    .map(Number)
    // The process that does this may be a child, and would stop itself.
    .filter((child) => child !== process.pid);

function parentOf(pid: string): number | undefined {
  try {
    return Number(/^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
  } catch {
    return undefined;
  }
}

/** A child may end at any moment. */
const ignoreEnded = (pid: number) => (error: unknown) => {
  if (parentOf(String(pid)) !== undefined) throw error;
};

interface Range {
  from: bigint;
  to: bigint;
}

function vdsoOf(pid: number): Range {
  const line = /^([0-9a-f]+)-([0-9a-f]+) .*\[vdso\]$/m.exec(readFileSync(`/proc/${pid}/maps`, 'utf8'));
  if (!line) throw new Error(`process ${pid} has no vDSO`);
  return { from: BigInt(`0x${line[1]}`), to: BigInt(`0x${line[2]}`) };
}

/** Stops a process for a moment in which none of its threads is about to tell the time. */
async function whileStopped(pid: number, work: (vdso: Range) => void): Promise<void> {
  const vdso = vdsoOf(pid);
  await eventually(`process ${pid} to be stopped elsewhere`, async () => {
    process.kill(pid, 'SIGSTOP');
    try {
      await eventually(`process ${pid} to be stopped`, async () => threadsOf(pid).every(isStopped));
      if (threadsOf(pid).some((task) => isWithin(task, vdso))) return false;
      work(vdso);
      return true;
    } finally {
      process.kill(pid, 'SIGCONT');
    }
  });
}

const threadsOf = (pid: number): string[] =>
  readdirSync(`/proc/${pid}/task`).map((thread) => `/proc/${pid}/task/${thread}`);

const isStopped = (task: string): boolean => /^State:\s+[Tt]/m.test(readFileSync(`${task}/status`, 'utf8'));

/** The last value is the instruction that comes next. */
function isWithin(task: string, { from, to }: Range): boolean {
  const next = BigInt(readFileSync(`${task}/syscall`, 'utf8').trim().split(' ').at(-1)!);
  return next >= from && next < to;
}

function patch(pid: number, { from, to }: Range, seconds: bigint): void {
  const memory = openSync(`/proc/${pid}/mem`, 'r+');
  try {
    const page = Buffer.alloc(Number(to - from));
    readSync(memory, page, 0, page.length, from);
    const room = page.length - ROOM;
    if (page.readBigUInt64LE(room + MARK_AT) !== MARK) hook(page, room);
    page.writeBigInt64LE(seconds, room + SHIFT_AT);
    writeSync(memory, page, 0, page.length, Number(from));
  } finally {
    closeSync(memory);
  }
}

/** Puts the hooks at the end, and a jump to its hook at the beginning of each function. */
function hook(page: Buffer, room: number): void {
  if (page.subarray(room).some((byte) => byte !== 0))
    throw new Error('the vDSO has no room for another function');
  page.writeBigUInt64LE(MARK, room + MARK_AT);
  let at = room + CODE_AT;
  for (const [name, start] of functionsOf(page)) {
    const begin = at;
    for (const part of HOOKS[name]!) {
      at = part === 'shift' ? page.writeInt32LE(room + SHIFT_AT - (at + 4), at) : page.writeUInt8(part, at);
    }
    page.writeUInt8(0xe9, start);
    page.writeInt32LE(begin - (start + 5), start + 1);
  }
}

/** Where the functions of an ELF image begin that have a hook. @throws Error when one is missing. */
function functionsOf(image: Buffer): [name: string, start: number][] {
  const number = (at: number) => Number(image.readBigUInt64LE(at));
  const sections = number(0x28);
  const sectionAt = (index: number) => sections + index * image.readUInt16LE(0x3a);
  const indexes = Array.from({ length: image.readUInt16LE(0x3c) }, (_, index) => index);
  const symbols = indexes.map(sectionAt).find((at) => image.readUInt32LE(at + 4) === 11)!;
  const names = number(sectionAt(image.readUInt32LE(symbols + 0x28)) + 0x18);
  const found = new Map<string, number>();
  const begin = number(symbols + 0x18);
  for (let at = begin; at < begin + number(symbols + 0x20); at += 24) {
    const name = names + image.readUInt32LE(at);
    found.set(image.toString('latin1', name, image.indexOf(0, name)), number(at + 8));
  }
  return Object.keys(HOOKS).map((name) => {
    const start = found.get(name);
    if (start === undefined) throw new Error(`the vDSO has no ${name}`);
    return [name, start];
  });
}
