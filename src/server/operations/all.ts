// The handlers of all operations. One that is missing, or one too many, does not compile.
import type { OperationName } from '../../protocol/operations/all.ts';
import { accessHandlers } from './access.ts';
import { chatHandlers } from './chat.ts';
import { createContext, type Handlers, type OperationParts } from './context.ts';
import { deliveryHandlers } from './deliveries.ts';
import { explainHandlers } from './explain.ts';
import { feedHandlers } from './feed.ts';
import { sessionHandlers } from './sessions.ts';
import { systemHandlers } from './system.ts';
import { toolHandlers } from './tools.ts';

export function createHandlers(parts: OperationParts): Handlers<OperationName> {
  const context = createContext(parts);
  return {
    ...systemHandlers(context),
    ...sessionHandlers(context),
    ...chatHandlers(context),
    ...deliveryHandlers(context),
    ...feedHandlers(context),
    ...toolHandlers(context),
    ...explainHandlers(context),
    ...accessHandlers(context),
  };
}
