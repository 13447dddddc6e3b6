import { expect, it } from 'vitest';
import { Exposition } from './exposition.ts';

it('is the text that Prometheus reads: buckets that add up, values looked at when asked', async () => {
  const exposition = new Exposition();
  const runs = exposition.counter('runs_total', 'Runs that ended.');
  const time = exposition.histogram('time_seconds', 'How long it took.', [0.1, 1]);
  let waiting = 1;
  exposition.gauge('waiting', 'Who waits.', (set) => set({}, waiting));
  runs.inc({ class: 'main', outcome: 'ok' });
  runs.inc({ class: 'main', outcome: 'ok' });
  runs.inc({ class: 'cron', outcome: 'error' });
  for (const seconds of [0.1, 0.5, 4]) time.observe({ class: 'main' }, seconds);
  waiting = 2;
  expect(await exposition.text()).toBe(`# HELP runs_total Runs that ended.
# TYPE runs_total counter
runs_total{class="main",outcome="ok"} 2
runs_total{class="cron",outcome="error"} 1

# HELP time_seconds How long it took.
# TYPE time_seconds histogram
time_seconds_bucket{class="main",le="0.1"} 1
time_seconds_bucket{class="main",le="1"} 2
time_seconds_bucket{class="main",le="+Inf"} 3
time_seconds_sum{class="main"} 4.6
time_seconds_count{class="main"} 3

# HELP waiting Who waits.
# TYPE waiting gauge
waiting 2
`);
});
