// The operation table at work: name → may the caller → closed parameters → handler. Every door calls operations through it.
import { InterlaneError } from '../errors.ts';
import { nearest } from '../nearest.ts';
import type { OperationName, Params, ReadParams, Results } from '../protocol/operations/all.ts';
import type { Operation, Operations } from '../protocol/operations/operation.ts';
import { mayCall, requireScope, type Caller } from './rights.ts';
import type { Call, Handlers } from './operations/context.ts';
import { readParams } from './params.ts';

export type Dispatch = ReturnType<typeof createDispatch>;

export function createDispatch(table: Operations, handlers: Handlers<OperationName>) {
  /** The operation of this name, for a caller who has its right. */
  const allowed = (name: string, caller: Caller): Operation => {
    if (!Object.hasOwn(table, name)) {
      const [near] = nearest(name, Object.keys(table));
      throw new InterlaneError('METHOD_NOT_FOUND', `unknown method: ${name.slice(0, 128)}${near ? `; did you mean ${near}?` : ''}`);
    }
    const operation = table[name]!;
    if (operation.scope !== 'session') requireScope(caller, operation.scope, name);
    return operation;
  };
  const handle = (name: string, params: unknown, call: Call) =>
    (handlers[name as OperationName] as (params: unknown, call: Call) => Promise<unknown>)(params, call);

  return {
    async call(name: string, params: unknown, call: Call): Promise<unknown> {
      const { params: schema } = allowed(name, call.caller);
      return handle(name, readParams(schema, params ?? undefined, `invalid ${name} params`), call);
    },
    /** `call` with the types of the table. */
    do<N extends OperationName>(name: N, params: Params<N>, call: Call): Promise<Results[N]> {
      return this.call(name, params, call) as Promise<Results[N]>;
    },
    /** For parameters that a route has read by its own schemas. */
    async doRead<N extends OperationName>(name: N, params: ReadParams<N>, call: Call): Promise<Results[N]> {
      allowed(name, call.caller);
      return (await handle(name, params, call)) as Results[N];
    },
    /** The names of the operations that a caller may call. */
    usableBy: (caller: Caller): string[] =>
      Object.entries(table)
        .filter(([, { scope }]) => mayCall(caller, scope))
        .map(([name]) => name),
  };
}
