// Many callers, one line: items wait in the order of each caller, and callers take turns.

export class RoundRobin<Caller, T> {
  /** In the order of turns: a caller that was served goes to the end. */
  private readonly lines = new Map<Caller, T[]>();
  private count = 0;

  /** How many wait, of all callers. */
  get size(): number {
    return this.count;
  }

  /** How many of one caller wait. */
  waiting(by: Caller): number {
    return this.lines.get(by)?.length ?? 0;
  }

  add(by: Caller, item: T): void {
    const line = this.lines.get(by);
    if (line) line.push(item);
    else this.lines.set(by, [item]);
    this.count++;
  }

  /** The oldest item of the caller whose turn it is, among those that may go now. */
  take(mayGo: (by: Caller) => boolean = () => true): { by: Caller; item: T } | undefined {
    for (const [by, line] of this.lines) {
      if (!mayGo(by)) continue;
      const item = line.shift()!;
      this.lines.delete(by);
      if (line.length > 0) this.lines.set(by, line);
      this.count--;
      return { by, item };
    }
    return undefined;
  }
}
