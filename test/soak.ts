// Whether this is `npm run soak`, the long version of the tests: test/setup.ts gives it no fixed seed.
import { readConfigureGlobal } from 'fast-check';

export const soak = readConfigureGlobal()?.seed === undefined;
