// Operations that explain the decisions of the rules.
import { Explanation } from '../decision.ts';
import { ExplainAccess, ExplainKey, ExplainRoute, ExplainSend, ExplainTools } from '../explain.ts';
import type { Operations } from './operation.ts';

export const explain = {
  'explain.route': {
    scope: 'operator.read',
    about: 'which agent and session a message goes to',
    params: ExplainRoute,
    result: Explanation,
  },
  'explain.key': { scope: 'operator.read', about: 'what a session key means', params: ExplainKey, result: Explanation },
  'explain.send': { scope: 'operator.read', about: 'whether text may leave for a channel', params: ExplainSend, result: Explanation },
  'explain.access': { scope: 'operator.read', about: 'whether one session reaches another', params: ExplainAccess, result: Explanation },
  'explain.tools': { scope: 'operator.read', about: 'which tools a session gets, and why', params: ExplainTools, result: Explanation },
} as const satisfies Operations;
