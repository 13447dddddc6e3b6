// The linter. Its layer rules are made from the table in test/layers.ts.
import { bannedFor, filesOf, tiers } from './test/layers.ts';

const timeHere = 'time comes in as a Clock; see src/clock.ts';
const chanceHere = 'chance and ids come from gateway.ts';

const layers = tiers.flat().map((part) => ({
  files: [filesOf(part)],
  rules: {
    'no-restricted-imports': [
      'error',
      { patterns: [{ group: bannedFor(part), message: `${part} may import only from the tiers below it; see test/layers.ts` }] },
    ],
  },
}));

export default {
  plugins: ['typescript', 'import', 'unicorn', 'oxc', 'vitest'],
  categories: { correctness: 'error', suspicious: 'error', perf: 'error' },
  options: { typeAware: true },
  env: { node: true },
  ignorePatterns: ['dist', 'node_modules'],
  rules: {
    'import/no-cycle': 'error',
    'typescript/no-floating-promises': 'error',
    'typescript/no-misused-promises': 'error',
    'typescript/switch-exhaustiveness-check': ['error', { considerDefaultExhaustiveForUnions: true }],
    'typescript/no-explicit-any': 'error',
    'typescript/consistent-type-imports': 'error',
    eqeqeq: 'error',
    'no-underscore-dangle': ['error', { allow: ['_meta'] }],
    'no-await-in-loop': 'off',
    'typescript/unbound-method': 'off',
    'unicorn/require-post-message-target-origin': 'off',
    'oxc/no-map-spread': 'off',
    'typescript/consistent-return': 'off',
    'no-shadow': 'off',
    'import/no-unassigned-import': 'off',
    'typescript/no-unsafe-type-assertion': 'off',
    'vitest/no-focused-tests': 'error',
    'vitest/no-disabled-tests': 'error',
    'unicorn/consistent-function-scoping': 'off',
    'vitest/no-conditional-expect': 'off',
  },
  overrides: [
    {
      files: ['src/**/*.ts'],
      rules: {
        'no-console': 'error',
        'no-restricted-globals': ['error', ...['setTimeout', 'setInterval', 'setImmediate'].map((name) => ({ name, message: timeHere }))],
        'no-restricted-properties': [
          'error',
          { object: 'Date', property: 'now', message: timeHere },
          { object: 'Math', property: 'random', message: chanceHere },
          { object: 'crypto', property: 'randomUUID', message: chanceHere },
        ],
      },
    },
    { files: ['src/gateway.ts', 'src/clock.ts'], rules: { 'no-restricted-globals': 'off', 'no-restricted-properties': 'off' } },
    {
      files: ['src/protocol/compat/openclaw.ts', 'test/**/*.ts'],
      rules: { 'no-underscore-dangle': ['error', { allow: ['__openclaw', '_meta'] }] },
    },
    ...layers,
    {
      files: ['src/**/*.test.ts'],
      rules: { 'no-restricted-imports': 'off', 'no-restricted-globals': 'off', 'no-restricted-properties': 'off' },
    },
  ],
};
