// The operation table at work: name → may the caller → closed parameters → handler. Every door calls operations through it.
import { InterlaneError } from '../errors.ts';
import { nearest } from '../nearest.ts';
import type { OperationName, Params, Results } from '../protocol/operations/all.ts';
import type { Operations } from '../protocol/operations/operation.ts';
import { mayCall, requireScope, type Caller } from './rights.ts';
import type { Call, Handlers } from './operations/context.ts';
import { readParams } from './params.ts';

export type Dispatch = ReturnType<typeof createDispatch>;

export function createDispatch(table: Operations, handlers: Handlers<OperationName>) {
  const call = async (name: string, params: unknown, call: Call): Promise<unknown> => {
    if (!Object.hasOwn(table, name)) {
      const [near] = nearest(name, Object.keys(table));
      throw new InterlaneError('METHOD_NOT_FOUND', `unknown method: ${name.slice(0, 128)}${near ? `; did you mean ${near}?` : ''}`);
    }
    const { scope, params: schema } = table[name]!;
    if (scope !== 'session') requireScope(call.caller, scope, name);
    const read = readParams(schema, params ?? undefined, `invalid ${name} params`);
    return (handlers[name as OperationName] as (params: unknown, call: Call) => Promise<unknown>)(read, call);
  };
  return {
    call,
    /** The same for code of ours, with its types. */
    do: <N extends OperationName>(name: N, params: Params<N>, one: Call) => call(name, params, one) as Promise<Results[N]>,
    /** The names of what a caller may call. */
    usableBy: (caller: Caller): string[] =>
      Object.entries(table)
        .filter(([, { scope }]) => mayCall(caller, scope))
        .map(([name]) => name),
  };
}
