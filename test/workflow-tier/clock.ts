/** Virtual time: it stands still while anything is due, and then jumps to what is due next. */

export interface Due {
  atMs: number;
  act: () => void | Promise<void>;
}

/** More steps than this at one time, or in one wait, mean that there is no end. */
export const MOST_STEPS = 10_000;

export class Clock {
  nowMs: number;
  private readonly due: Due[] = [];
  private stepsAtOneTime = 0;

  constructor(nowMs: number) {
    this.nowMs = nowMs;
  }

  /** When the next thing is due; Infinity when nothing is. */
  get nextMs(): number {
    return this.due[0]?.atMs ?? Infinity;
  }

  schedule(afterMs: number, act: Due['act']): Due {
    const entry = { atMs: this.nowMs + afterMs, act };
    this.due.splice(this.due.findLastIndex(({ atMs }) => atMs <= entry.atMs) + 1, 0, entry);
    return entry;
  }

  drop(entry: Due | undefined): void {
    const index = entry ? this.due.indexOf(entry) : -1;
    if (index >= 0) this.due.splice(index, 1);
  }

  /** Goes to the time of what is due next, and does all that is due then. What this schedules is left. */
  async tick(): Promise<void> {
    if (this.nextMs > this.nowMs) this.stepsAtOneTime = 0;
    else if ((this.stepsAtOneTime += 1) > MOST_STEPS) throw new Error('the workflow never comes to rest');
    this.nowMs = Math.max(this.nowMs, this.nextMs);
    const later = this.due.findIndex(({ atMs }) => atMs > this.nowMs);
    for (const { act } of this.due.splice(0, later < 0 ? this.due.length : later)) await act();
  }
}
