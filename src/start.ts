// Starting a gateway, for programs that embed it and for the command line.
import type { Config } from './config/schema.ts';
import type { Gateway, GatewayOptions } from './embed.ts';
import { assemble } from './gateway.ts';

export async function startGateway(config: Config, options: GatewayOptions): Promise<Gateway> {
  return (await assemble(config, options)).gateway;
}
