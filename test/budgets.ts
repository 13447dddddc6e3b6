/** Seconds that each group of tests may take on a quiet machine. What exceeds them moves to `npm run soak`. */
export const budgets: Record<string, number> = { checks: 30, unit: 120, property: 60, crash: 100, process: 80, postgres: 15 };
