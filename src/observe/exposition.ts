// Counters, histograms and gauges, and their text in the format of Prometheus. Values are computed at each request.

/** Labels with closed sets of values, in the order of output. */
export type Labels = Record<string, string>;

interface Counter {
  inc(labels: Labels): void;
}

interface Histogram {
  observe(labels: Labels, value: number): void;
}

interface Family {
  name: string;
  help: string;
  type: 'counter' | 'histogram' | 'gauge';
  /** The lines of its values. */
  lines(): string[] | Promise<string[]>;
}

export class Exposition {
  private readonly families: Family[] = [];

  counter(name: string, help: string): Counter {
    const counts = new Map<string, number>();
    this.families.push({ name, help, type: 'counter', lines: () => Array.from(counts, ([labels, n]) => line(name, labels, n)) });
    return {
      inc(labels) {
        const text = textOf(labels);
        counts.set(text, (counts.get(text) ?? 0) + 1);
      },
    };
  }

  /** `limits` rise; a value above the last one is in no bucket. */
  histogram(name: string, help: string, limits: number[]): Histogram {
    const all = new Map<string, { counts: number[]; count: number; sum: number }>();
    const lines = () =>
      Array.from(all, ([labels, { counts, count, sum }]) => {
        let below = 0;
        const within = limits.map((limit, n) => line(`${name}_bucket`, joined(labels, `le="${limit}"`), (below += counts[n]!)));
        return [
          ...within,
          line(`${name}_bucket`, joined(labels, 'le="+Inf"'), count),
          line(`${name}_sum`, labels, sum),
          line(`${name}_count`, labels, count),
        ];
      }).flat();
    this.families.push({ name, help, type: 'histogram', lines });
    return {
      observe(labels, value) {
        const text = textOf(labels);
        let one = all.get(text);
        if (!one) all.set(text, (one = { counts: limits.map(() => 0), count: 0, sum: 0 }));
        const place = limits.findIndex((limit) => value <= limit);
        if (place >= 0) one.counts[place]!++;
        one.count++;
        one.sum += value;
      },
    };
  }

  /** Read at each request. */
  gauge(name: string, help: string, look: (set: (labels: Labels, value: number) => void) => Promise<void> | void): void {
    const lines = async () => {
      const values: string[] = [];
      await look((labels, value) => void values.push(line(name, textOf(labels), value)));
      return values;
    };
    this.families.push({ name, help, type: 'gauge', lines });
  }

  async text(): Promise<string> {
    const written: string[] = [];
    for (const { name, help, type, lines } of this.families)
      written.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`, ...(await lines()), '');
    return written.join('\n');
  }
}

function textOf(labels: Labels): string {
  let text = '';
  for (const name in labels) text += `${text === '' ? '' : ','}${name}="${labels[name]}"`;
  return text;
}

const joined = (labels: string, label: string) => (labels === '' ? label : `${labels},${label}`);
const line = (name: string, labels: string, value: number) => `${name}${labels === '' ? '' : `{${labels}}`} ${value}`;
